/*
 * probe_procs.c
 *		The wait probe: sleeps until the next tick and sweeps over the
 *		processes, as long as nothing happens that Go has to know.
 *
 * Quiet ticks stay here: waking Go a hundred times a second costs more than
 * the sweeps (three wake-ups of its own threads for each blocking call).
 *
 * The sweep takes no lock.  It reads aligned words of PGPROC that other
 * processes write while it looks; each value was true at some moment, no two
 * need belong together.  What is made of them is checked again under the
 * partition lock (probe_locks.c) or by the caller.
 */
#include "plh.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "compat.h"

/*
 * How often postmaster.pid is looked at, and the longest sleep in one piece.
 * A smart shutdown waits for our writer, which waits for this: together with
 * what the writer may take then (stopGrace in Go) it is below half a second. A
 * look takes some microseconds.
 */
#define LOOK_AROUND_NS (200 * INT64CONST(1000000))

/* A hole between two sweeps is a gap from this length on (and 3 periods). */
#define GAP_NS (1000 * INT64CONST(1000000))

/*
 * A process that was just granted its lock shows no awaited lock some
 * instructions before its status says how it went; look again this often.
 */
#define STATUS_TRIES 100

/* The worker's own; used on its main thread only. */
typedef struct PlhPace
{
	WaitEventSet *events;
	int			timer_fd;
	int			wake_fd;
	uint32		wait_event;
	int64		period_ns;		/* as armed, 0 = no ticks */
	int64		last_due_ns;	/* due time of the last tick that came */
	int64		last_sweep_ns;	/* monotonic time of the last sweep, 0 = none yet */
	int64		last_look_ns;	/* last look at postmaster.pid */
	uint64		last_ticket;	/* highest flush() ticket reported to Go */
	bool		told_stopping;
	bool		reloading;		/* inside ProcessConfigFile() */
} PlhPace;

static PlhPace *pace;

int64
plh_monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * INT64CONST(1000000000) + now.tv_nsec;
}

int
plh_wake_fd(void)
{
	return pace->wake_fd;
}

/* Main code of the worker, before Go runs: may raise. */
void
plh_prepare_wait_probe(void)
{
	pace = MemoryContextAllocZero(TopMemoryContext, sizeof(PlhPace));
	pace->wait_event = plh_wait_event("PgLockHistoryMain");
	pace->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	pace->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (pace->timer_fd < 0 || pace->wake_fd < 0)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("pg_lock_history: could not make a timer: %m")));

	/* flush() tickets of before are answered by the first flush of this life. */
	pace->last_ticket = pg_atomic_read_u64(&plh_shared->flush_done);

	pace->events = plh_create_wait_event_set(4);
	AddWaitEventToSet(pace->events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(pace->events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(pace->events, WL_SOCKET_READABLE, pace->timer_fd, NULL, NULL);
	AddWaitEventToSet(pace->events, WL_SOCKET_READABLE, pace->wake_fd, NULL, NULL);
}

/*
 * Absolute schedule: a late tick does not move the ones after it.
 */
static void
arm_timer(int64 period_ns)
{
	struct itimerspec when;

	memset(&when, 0, sizeof(when));
	if (period_ns > 0)
	{
		int64		first;

		pace->last_due_ns = plh_monotonic_ns();
		first = pace->last_due_ns + period_ns;
		when.it_value.tv_sec = first / 1000000000;
		when.it_value.tv_nsec = first % 1000000000;
		when.it_interval.tv_sec = period_ns / 1000000000;
		when.it_interval.tv_nsec = period_ns % 1000000000;
	}
	if (timerfd_settime(pace->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not set the timer to %lld ns: %m", (long long) period_ns)));
	pace->period_ns = period_ns;
}

/*
 * True while the slot still tells of the process pid: it is alive, or has
 * ended and, where the version leaves that to be seen, nobody took the slot.
 */
static bool
still_tells_of(const PGPROC *proc, int pid)
{
	return plh_is_alive(proc, pid) ||
		(PLH_ENDED_SLOT_KEEPS_PID && *(const volatile int *) &proc->pid == pid);
}

/*
 * How the last wait of the process has ended; proc does not wait now.  The status
 * stays until that process waits again, also when it ends.  Whether the last
 * wait is the one that was known is told by the failure records.
 */
static int32
status_of_ended(const PGPROC *proc, int pid)
{
	int			tries;

	for (tries = 0; tries < STATUS_TRIES; tries++)
	{
		int			status = *(const volatile int *) &proc->waitStatus;

		/* Asked after the status was read: whose was it? */
		pg_read_barrier();
		if (!still_tells_of(proc, pid))
			return PLH_ENDED_LEFT;
		if (status == PROC_WAIT_STATUS_OK)
			return PLH_ENDED_GRANTED;
		if (status == PROC_WAIT_STATUS_ERROR)
			return PLH_ENDED_FAILED;
		if (*(LOCK *const volatile *) &proc->waitLock != NULL)
			return PLH_ENDED_LEFT;	/* waits again */
		pg_spin_delay();
	}
	return PLH_ENDED_UNKNOWN;
}

static void
add_found(PlhWait *found, uint32_t room, PlhWake *wake, const PlhWait *row)
{
	if (wake->n_found < room)
		found[wake->n_found++] = *row;
	else
		wake->n_lost++;
}

/*
 * True while the process stands in the queue of a heavyweight lock.  It is set
 * and cleared with waitLock, under the same partition lock, and lies in the cache
 * line that holds all that load has to know of an idle process: one line to be
 * fetched for each slot at each tick, not two.
 */
static inline bool
is_in_a_queue(const PGPROC *proc)
{
	return *(const volatile int *) &proc->waitStatus == PROC_WAIT_STATUS_WAITING;
}

/*
 * One pass over the processes; true when the waiters differ from the known
 * ones.  Touches one cache line of a process that does not wait.
 */
static bool
sweep(uint32_t track, const PlhWait *known, uint32_t n_known, PlhWait *found, uint32_t room, PlhWake *wake)
{
	uint32		count = track & PLH_TRACK_LOCKS ? PLH_MAX_PROCESSES() : 0;
	uint32		next = 0;
	uint32		i;
	bool		changed = false;
	int64		started = plh_monotonic_ns();
	int64		hole;

	wake->n_found = wake->n_waiting = wake->n_lost = 0;

	plh_choose_slots(started);
	for (i = 0; i < n_known; i++)
		plh_take_in((uint32) known[i].slot);	/* those that an earlier life of the worker knew */
	for (i = plh_slot(0); i < count; i = plh_slot(i + 1))
	{
		const PGPROC *proc = &ProcGlobal->allProcs[i];
		LOCK	   *lock;
		const PlhWait *was = NULL;
		PlhWait		now;

		if (next < n_known && known[next].slot == (int32) i)
			was = &known[next++];
		if (was == NULL && !is_in_a_queue(proc))
			continue;
		lock = *(LOCK *const volatile *) &proc->waitLock;
		if (was == NULL && lock == NULL)
			continue;

		memset(&now, 0, sizeof(now));
		now.slot = (int32) i;
		now.pid = *(const volatile int *) &proc->pid;
		if (lock != NULL && plh_is_alive(proc, now.pid))
		{
			now.lock = (uint64_t) (uintptr_t) lock;
			now.wait_start = (int64_t) pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &proc->waitStart));
			now.wait_event_info = *(const volatile uint32 *) &proc->wait_event_info;
			now.status = PLH_WAITING;
		}
		else
			lock = NULL;

		if (was != NULL && lock != NULL && was->pid == now.pid &&
			was->lock == now.lock && was->wait_start == now.wait_start)
		{
			add_found(found, room, wake, &now);
			wake->n_waiting++;
			continue;
		}

		changed = true;
		if (was != NULL && lock != NULL && was->pid == now.pid &&
			was->lock == now.lock && was->wait_start == 0)
		{
			/* The same wait: its start has been published in the meantime. */
			add_found(found, room, wake, &now);
			wake->n_waiting++;
			continue;
		}
		if (was != NULL)
		{
			PlhWait		ended = *was;

			ended.status = lock != NULL ? PLH_ENDED_LEFT : status_of_ended(proc, was->pid);
			add_found(found, room, wake, &ended);
		}
		if (lock != NULL)
		{
			add_found(found, room, wake, &now);
			wake->n_waiting++;
		}
	}

	wake->now = (int64_t) GetCurrentTimestamp();
	wake->now_ns = plh_monotonic_ns();
	/* By the clock of now: it may have been set since. */
	wake->previous = pace->last_sweep_ns != 0 ? wake->now - (wake->now_ns - pace->last_sweep_ns) / 1000 : 0;
	wake->last_sweep_ns = (uint32_t) Min(wake->now_ns - started, PG_UINT32_MAX);
	pg_atomic_write_u64(&plh_shared->last_tick, (uint64) wake->now);

	/* Its length by the clock that nobody sets. */
	hole = pace->last_sweep_ns != 0 ? wake->now_ns - pace->last_sweep_ns : 0;
	if (hole > Max(GAP_NS, 3 * pace->period_ns) &&
		hole / 1000 > wake->gap_ended - wake->gap_began)
	{
		wake->gap_began = wake->now - hole / 1000;
		wake->gap_ended = wake->now;
	}
	pace->last_sweep_ns = wake->now_ns;
	return changed;
}

/* Takes the expirations of the timer; true when a tick was due. */
static bool
take_tick(PlhWake *wake)
{
	uint64		expired = 0;

	if (read(pace->timer_fd, &expired, sizeof(expired)) != sizeof(expired) || expired == 0)
		return false;
	pace->last_due_ns += (int64) expired * pace->period_ns;
	wake->ticks_done++;
	wake->ticks_missed += (uint32_t) (expired - 1);
	if (plh_monotonic_ns() - pace->last_due_ns > pace->period_ns / 2)
		wake->ticks_late++;
	return true;
}

/* Takes what others ask of us (signals, flags, the server's state) into reasons. */
static void
look_around(PlhWake *wake)
{
	uint64		ticket;
	int64		now = plh_monotonic_ns();

	CHECK_FOR_INTERRUPTS();
	if (ShutdownRequestPending)
	{
		plh_alert_watchdog();
		wake->reasons |= PLH_WAKE_STOP;
	}
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		pace->reloading = true;
		ProcessConfigFile(PGC_SIGHUP);
		pace->reloading = false;
		wake->reasons |= PLH_WAKE_RELOAD;
	}
	ticket = pg_atomic_read_u64(&plh_shared->flush_requested);
	if (ticket > pace->last_ticket)
	{
		pace->last_ticket = ticket;
		wake->reasons |= PLH_WAKE_FLUSH;
	}
	wake->flush_request = pace->last_ticket;
	if (pace->period_ns > 0 && plh_failures_are_news())
		wake->reasons |= PLH_WAKE_FAILED;
	if (pg_atomic_exchange_u32(&plh_shared->poked, 0) != 0)
		wake->reasons |= PLH_WAKE_POKED;
	if (now - pace->last_look_ns >= LOOK_AROUND_NS)
	{
		pace->last_look_ns = now;
		if (!pace->told_stopping && plh_server_is_stopping())
		{
			pace->told_stopping = true;
			wake->reasons |= PLH_WAKE_STOPPING;
		}
	}
}

static void
wait_and_sweep(int64_t period_ns, int64_t deadline_ns, uint32_t track,
			   const PlhWait *known, uint32_t n_known,
			   PlhWait *found, uint32_t room, PlhWake *wake)
{
	if (period_ns != pace->period_ns)
	{
		arm_timer(period_ns);
		pace->last_sweep_ns = 0;	/* what was before is no hole in this pace */
	}
	if (period_ns == 0 || !(track & PLH_TRACK_LOAD))
	{
		plh_forget_activity();
		plh_forget_fastpath();
	}

	for (;;)
	{
		WaitEvent	happened[4];
		bool		due = false;
		int64		left;
		int			n;
		int			i;

		look_around(wake);
		left = deadline_ns - plh_monotonic_ns();
		if (left <= 0)
			wake->reasons |= PLH_WAKE_DEADLINE;
		if (wake->reasons != 0)
		{
			/* Go decides on fresh facts. */
			if (period_ns == 0)
			{
				wake->now = (int64_t) GetCurrentTimestamp();
				wake->now_ns = plh_monotonic_ns();
			}
			else if (sweep(track, known, n_known, found, room, wake))
				wake->reasons |= PLH_WAKE_CHANGED;
			return;
		}
		if (plh_go_has_died())
			return;				/* plh_leave_wait() does the rest */

		left = Min(left, LOOK_AROUND_NS);
		n = WaitEventSetWait(pace->events, (long) ((left + 999999) / 1000000),
							 happened, lengthof(happened), pace->wait_event);
		for (i = 0; i < n; i++)
		{
			if (happened[i].events & WL_LATCH_SET)
				ResetLatch(MyLatch);
			else if (happened[i].fd == pace->timer_fd)
				due = take_tick(wake);
			else if (happened[i].fd == pace->wake_fd)
			{
				uint64		count;

				if (read(pace->wake_fd, &count, sizeof(count)) > 0)
					wake->reasons |= PLH_WAKE_NOTIFY;
			}
		}
		if (due)
		{
			bool		changed = sweep(track, known, n_known, found, room, wake);
			int64		swept = plh_monotonic_ns();

			if (track & PLH_TRACK_LOCKS)
				plh_look_at_statements(wake->now, swept);
			if (track & PLH_TRACK_LOAD)
			{
				if (plh_note_activity(wake->now, wake->now_ns, period_ns, track))
					wake->reasons |= PLH_WAKE_ACTIVITY;
				plh_note_fastpath(wake, period_ns);
			}
			wake->last_sweep_ns += (uint32_t) Min(plh_monotonic_ns() - swept, PG_INT32_MAX);
			if (changed || wake->reasons != 0 || plh_monotonic_ns() >= deadline_ns)
			{
				/* The rest of the reasons are seen at the next call. */
				if (changed)
					wake->reasons |= PLH_WAKE_CHANGED;
				else if (wake->reasons == 0)
					wake->reasons |= PLH_WAKE_DEADLINE;
				wake->last_was_tick = 1;
				wake->flush_request = pace->last_ticket;
				return;
			}
			plh_hist_add(wake->sweep_hist, wake->last_sweep_ns);
		}
	}
}

int32_t
plh_probe_wait(int64_t period_ns, int64_t deadline_ns, uint32_t track,
			   const PlhWait *known, uint32_t n_known,
			   PlhWait *found, uint32_t found_room, PlhWake *wake)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile int32_t result = PLH_OK;

	memset(wake, 0, sizeof(*wake));
	plh_enter_wait();
	PG_TRY();
	{
		wait_and_sweep(period_ns, deadline_ns, track, known, n_known, found, found_room, wake);
	}
	PG_CATCH();
	{
		LWLockReleaseAll();
		plh_keep_error(caller);
		result = PLH_ERROR;
		if (pace->reloading)
		{
			pace->reloading = false;
			ConfigReloadPending = true; /* not lost: tried again at the next call */
		}
	}
	PG_END_TRY();
	plh_leave_wait();
	return result;
}
