/*
 * compat.h
 *		What differs between server versions, and nothing else.
 *
 * Version conditionals stand here only.  plh.h includes this first, so that an
 * unsupported version is refused before anything else that it lacks.
 */
#ifndef PLH_COMPAT_H
#define PLH_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000
#error "pg_lock_history needs PostgreSQL 15 or later; 13 and 14 are out of support"
#endif
#if PG_VERSION_NUM >= 200000
#error "pg_lock_history does not know PostgreSQL 20 yet; build it for 15 to 19"
#endif

#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "storage/latch.h"
#include "storage/buf_internals.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "probe.h"
#if PG_VERSION_NUM >= 160000
#include "nodes/queryjumble.h"
#else
#include "utils/queryjumble.h"
#endif

/* A function that does not return; written before all else. */
#if PG_VERSION_NUM >= 180000
#define PLH_NORETURN pg_noreturn
#else
#define PLH_NORETURN pg_attribute_noreturn()
#endif

/* Signal handlers of the server. */
#if PG_VERSION_NUM >= 190000
#define PLH_SIG_IGN PG_SIG_IGN
#define PLH_CRASH_EXIT(signo) SignalHandlerForCrashExit(signo, NULL)
#else
#define PLH_SIG_IGN SIG_IGN
#define PLH_CRASH_EXIT(signo) SignalHandlerForCrashExit(signo)
#endif

/* 15.0 had the function under its older name. */
#if PG_VERSION_NUM < 150001
#define InitMaterializedSRF SetSingleFuncCall
#endif

/* Processes there can be: MaxBackends and the auxiliary ones, prepared dummies excluded. */
#define PLH_MAX_PROCESSES() ((uint32) ProcGlobal->allProcCount)

/* The same, before shared memory is made. */
#define PLH_MAX_PROCESSES_AT_REQUEST() ((Size) (MaxBackends + NUM_AUXILIARY_PROCS))

/*
 * The fast path of a process: groups of 16 slots, a word of 64 bits for each
 * with three bits a slot, one for each mode that can be in it; a slot is in use
 * while any of them is set.  One group up to 17; from 18 on their number follows
 * max_locks_per_transaction, a relation belongs to one of them, and the words
 * lie elsewhere: of the stand-in of a prepared transaction nowhere (NULL).
 */
#define PLH_FASTPATH_GROUP_SLOTS 16
#define PLH_FASTPATH_FIRST_BITS UINT64CONST(01111111111111111)
#if PG_VERSION_NUM >= 180000
#define PLH_FASTPATH_GROUPS() ((uint32) FastPathLockGroupsPerBackend)
#define plh_fastpath_words(proc) (*(uint64 *const volatile *) &(proc)->fpLockBits)
#else
#define PLH_FASTPATH_GROUPS() ((uint32) 1)
#define plh_fastpath_words(proc) (&(proc)->fpLockBits)
#endif

/* Numbers of BackendType that have a name. */
#if PG_VERSION_NUM >= 170000
#define PLH_BACKEND_TYPES BACKEND_NUM_TYPES
#else
#define PLH_BACKEND_TYPES ((uint32) B_WAL_WRITER + 1)
#endif

/* In which order the slots of client sessions come into use (slots.c). */
#if PG_VERSION_NUM >= 170000
#define PLH_SLOTS_ARE_USED_DOWNWARDS false
#else
#define PLH_SLOTS_ARE_USED_DOWNWARDS true
#endif

static inline int32
plh_slot_of(const PGPROC *proc)
{
	return (int32) (proc - ProcGlobal->allProcs);
}

/*
 * Before 17 a process that has ended leaves its pid in its slot until another
 * one takes the slot; later versions clear it.
 */
#if PG_VERSION_NUM >= 170000
#define PLH_ENDED_SLOT_KEEPS_PID false
#else
#define PLH_ENDED_SLOT_KEEPS_PID true
#endif

/* Local number of the transaction that a process is in, 0 for none, or one that has failed. */
static inline uint32
plh_lxid(const PGPROC *proc)
{
#if PG_VERSION_NUM >= 170000
	return *(const volatile LocalTransactionId *) &proc->vxid.lxid;
#else
	return *(const volatile LocalTransactionId *) &proc->lxid;
#endif
}

/* A walsender that has sent everything, though the event is none of type Activity. */
#if PG_VERSION_NUM >= 170000
#define PLH_WAIT_FOR_WAL WAIT_EVENT_WAL_SENDER_WAIT_FOR_WAL
#else
#define PLH_WAIT_FOR_WAL WAIT_EVENT_WAL_SENDER_WAIT_WAL
#endif

/* From 18 on a process has its status entry before it is known who is there. */
#if PG_VERSION_NUM >= 180000
#define PLH_HAS_INTRODUCED_ITSELF(state) ((state) != STATE_STARTING)
#else
#define PLH_HAS_INTRODUCED_ITSELF(state) true
#endif

/*
 * A deadlock that is found before the wait begins: before 18 the process was put
 * into the queue and taken out again, so that its waitStatus and waitLockMode
 * tell of it.  From 18 on it never is, and they are still those of the wait before.
 */
#if PG_VERSION_NUM >= 180000
#define PLH_EARLY_DEADLOCK_IS_WAIT false
#else
#define PLH_EARLY_DEADLOCK_IS_WAIT true
#endif

/*
 * The state word of an LWLock; its bits are private to lwlock.c.  Holders in
 * shared mode are counted in the low bits.
 */
#if PG_VERSION_NUM >= 180000
#define PLH_LW_EXCLUSIVE_HOLDER ((uint32) 1 << 18)
#else
#define PLH_LW_EXCLUSIVE_HOLDER ((uint32) 1 << 24)
#endif
#define PLH_LW_SHARED_HOLDERS (PLH_LW_EXCLUSIVE_HOLDER - 1)

/* Who holds a lock, as far as it says so itself. */
typedef struct PlhHolders
{
	bool		exclusive;
	uint32		shared;			/* so many */
} PlhHolders;

static inline PlhHolders
plh_lwlock_holders(const void *lock)
{
	uint32		state = pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &((const LWLock *) lock)->state));
	PlhHolders	holders = {(state & PLH_LW_EXCLUSIVE_HOLDER) != 0, state & PLH_LW_SHARED_HOLDERS};

	return holders;
}

/*
 * The locks that extensions asked for lie behind the server's own, those of one
 * name side by side, in the order of their tranches.  Up to 18 the names follow
 * the last of them.  From 19 on where they end is not told; but behind them is
 * other shared memory, and if two bytes of that should look like the next tranche,
 * that is a lock in whose queue nobody stands.
 */
static inline bool
plh_is_requested_lock(const LWLockPadded *lock, uint16 tranche_before)
{
#if PG_VERSION_NUM >= 190000
	return lock->lock.tranche >= LWTRANCHE_FIRST_USER_DEFINED &&
		(lock->lock.tranche == tranche_before || lock->lock.tranche == tranche_before + 1);
#else
	return NamedLWLockTrancheRequests > 0 && lock < (const LWLockPadded *) NamedLWLockTrancheArray;
#endif
}

/*
 * The lock on the content of a page.  Up to 18 it is an LWLock of the buffer
 * descriptor, with one wait event.  From 19 on it is a part of the descriptor's
 * state, with the same kind of queue, a third mode, and an event for each mode, of
 * which PLH_CONTENT_EVENT stands for all.  The events of type Buffer are these and
 * the wait for a pin, which is all that type BufferPin was.
 */
#if PG_VERSION_NUM >= 190000
#define PLH_CONTENT_EVENT WAIT_EVENT_BUFFER_EXCLUSIVE

static inline bool
plh_waits_for_content(uint32 event)
{
	return event == WAIT_EVENT_BUFFER_EXCLUSIVE || event == WAIT_EVENT_BUFFER_SHARED ||
		event == WAIT_EVENT_BUFFER_SHARE_EXCLUSIVE;
}

static inline bool
plh_waits_for_pin(uint32 event)
{
	return event == WAIT_EVENT_BUFFER_CLEANUP;
}

static inline const proclist_head *
plh_content_queue(const BufferDesc *buffer)
{
	return &buffer->lock_waiters;
}

/* Who holds it share exclusive lets others read: counted as one more of them. */
static inline PlhHolders
plh_content_holders(const void *buffer)
{
	uint64		state = pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &((const BufferDesc *) buffer)->state));
	PlhHolders	holders;

	holders.exclusive = (state & BM_LOCK_VAL_EXCLUSIVE) != 0;
	holders.shared = (uint32) ((state / BM_LOCK_VAL_SHARED) & MAX_BACKENDS) +
		((state & BM_LOCK_VAL_SHARE_EXCLUSIVE) != 0 ? 1 : 0);
	return holders;
}

static inline bool
plh_has_pin_waiter(const BufferDesc *buffer)
{
	return (pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &buffer->state)) & BM_PIN_COUNT_WAITER) != 0;
}
#else
#define PLH_CONTENT_EVENT ((uint32) (PG_WAIT_LWLOCK | LWTRANCHE_BUFFER_CONTENT))

static inline bool
plh_waits_for_content(uint32 event)
{
	return event == PLH_CONTENT_EVENT;
}

static inline bool
plh_waits_for_pin(uint32 event)
{
#if PG_VERSION_NUM >= 170000
	return (event & 0xFF000000) == PG_WAIT_BUFFERPIN;
#else
	return (event & 0xFF000000) == PG_WAIT_BUFFER_PIN;
#endif
}

static inline const proclist_head *
plh_content_queue(const BufferDesc *buffer)
{
	return &buffer->content_lock.waiters;
}

static inline PlhHolders
plh_content_holders(const void *buffer)
{
	return plh_lwlock_holders(&((const BufferDesc *) buffer)->content_lock);
}

static inline bool
plh_has_pin_waiter(const BufferDesc *buffer)
{
	return (pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &buffer->state)) & BM_PIN_COUNT_WAITER) != 0;
}
#endif

/* Waits for an LWLock, or for what one would be up to 18. */
static inline bool
plh_waits_for_lwlock(uint32 event)
{
	return (event & 0xFF000000) == PG_WAIT_LWLOCK || plh_waits_for_content(event);
}

/* PlhLWLockMode of such a wait; raw is the process's lwWaitMode. */
static inline int32
plh_lwlock_mode(uint32 event, uint8 raw)
{
#if PG_VERSION_NUM >= 190000
	/* There lwWaitMode is of another kind, and the event says it as well. */
	if (event == WAIT_EVENT_BUFFER_EXCLUSIVE)
		return PLH_LW_EXCLUSIVE;
	if (event == WAIT_EVENT_BUFFER_SHARE_EXCLUSIVE)
		return PLH_LW_SHARE_EXCLUSIVE;
	if (event == WAIT_EVENT_BUFFER_SHARED)
		return PLH_LW_SHARED;
#endif
	return raw;
}

static inline void
plh_copy_page_tag(const BufferDesc *buffer, PlhTarget *target)
{
	const volatile BufferTag *tag = &buffer->tag;

#if PG_VERSION_NUM >= 160000
	target->tablespace = tag->spcOid;
	target->database = tag->dbOid;
	target->relfile = tag->relNumber;
#else
	target->tablespace = tag->rnode.spcNode;
	target->database = tag->rnode.dbNode;
	target->relfile = tag->rnode.relNode;
#endif
	target->fork = tag->forkNum;
	target->block = tag->blockNum;
}

/* By what a process is linked into the queue of a lock. */
#if PG_VERSION_NUM >= 190000
#define PLH_WAIT_LINK waitLink
#else
#define PLH_WAIT_LINK links
#endif

/*
 * Walks over a LOCK.  The caller holds the lock's partition lock.  A NULL
 * argument starts at the head; NULL is the end.
 */
#if PG_VERSION_NUM >= 160000
static inline PGPROC *
plh_next_waiter(LOCK *lock, PGPROC *after)
{
	dlist_node *head = &lock->waitProcs.dlist.head;
	dlist_node *node = after ? after->PLH_WAIT_LINK.next : head->next;

	return node == NULL || node == head ? NULL : dlist_container(PGPROC, PLH_WAIT_LINK, node);
}

static inline PROCLOCK *
plh_next_proclock(LOCK *lock, PROCLOCK *after)
{
	dlist_node *head = &lock->procLocks.head;
	dlist_node *node = after ? after->lockLink.next : head->next;

	return node == NULL || node == head ? NULL : dlist_container(PROCLOCK, lockLink, node);
}
#else
static inline PGPROC *
plh_next_waiter(LOCK *lock, PGPROC *after)
{
	SHM_QUEUE  *head = &lock->waitProcs.links;

	return (PGPROC *) SHMQueueNext(head, after ? &after->links : head, offsetof(PGPROC, links));
}

static inline PROCLOCK *
plh_next_proclock(LOCK *lock, PROCLOCK *after)
{
	SHM_QUEUE  *head = &lock->procLocks;

	return (PROCLOCK *) SHMQueueNext(head, after ? &after->lockLink : head, offsetof(PROCLOCK, lockLink));
}
#endif

/*
 * Walks over the locks of one process in one partition.  The caller holds that
 * partition's lock.  Whether there are any may be asked without it: the answer
 * was true a moment ago.
 */
#if PG_VERSION_NUM >= 160000
static inline bool
plh_has_own_proclocks(PGPROC *proc, int32 partition)
{
	dlist_node *head = &proc->myProcLocks[partition].head;
	dlist_node *first = *(dlist_node *const volatile *) &head->next;

	return first != NULL && first != head;
}

static inline PROCLOCK *
plh_next_own_proclock(PGPROC *proc, int32 partition, PROCLOCK *after)
{
	dlist_node *head = &proc->myProcLocks[partition].head;
	dlist_node *node = after ? after->procLink.next : head->next;

	return node == NULL || node == head ? NULL : dlist_container(PROCLOCK, procLink, node);
}
#else
static inline bool
plh_has_own_proclocks(PGPROC *proc, int32 partition)
{
	SHM_QUEUE  *head = &proc->myProcLocks[partition];
	SHM_QUEUE  *first = *(SHM_QUEUE *const volatile *) &head->next;

	return first != NULL && first != head;
}

static inline PROCLOCK *
plh_next_own_proclock(PGPROC *proc, int32 partition, PROCLOCK *after)
{
	SHM_QUEUE  *head = &proc->myProcLocks[partition];

	return (PROCLOCK *) SHMQueueNext(head, after ? &after->procLink : head, offsetof(PROCLOCK, procLink));
}
#endif

/*
 * The array behind pg_stat_activity is static in the server; it is reached
 * from our own entry, whose index we know.  Valid from
 * BackgroundWorkerInitializeConnection() on.
 */
static inline PgBackendStatus *
plh_status_array(void)
{
#if PG_VERSION_NUM >= 170000
	return MyBEEntry - MyProcNumber;
#else
	return MyBEEntry - (MyBackendId - 1);
#endif
}

/*
 * The status entry of a process, or NULL.  The fields read here may change
 * under us, so the entry's own st_procpid decides; it is checked again by the
 * caller inside the change count.
 */
static inline PgBackendStatus *
plh_status_of(PgBackendStatus *array, const PGPROC *proc, int pid)
{
#if PG_VERSION_NUM >= 170000
	PgBackendStatus *entry = &array[plh_slot_of(proc)];

	return entry->st_procpid == pid ? entry : NULL;
#else
	BackendId	id = *(const volatile BackendId *) &proc->backendId;
	int			i;

	if (id >= 1 && id <= MaxBackends && array[id - 1].st_procpid == pid)
		return &array[id - 1];

	/* Auxiliary processes have their entries behind those of the backends. */
	for (i = MaxBackends; i < MaxBackends + NUM_AUXPROCTYPES; i++)
		if (array[i].st_procpid == pid)
			return &array[i];
	return NULL;
#endif
}

/*
 * True when more client slots are free than are reserved.  Walks the list of
 * free processes that far under its spinlock.
 */
static inline bool
plh_slot_is_spare(void)
{
#if PG_VERSION_NUM >= 160000
	int			n_free;

	return HaveNFreeProcs(SuperuserReservedConnections + ReservedConnections + 1, &n_free);
#else
	return HaveNFreeProcs(ReservedBackends + 1);
#endif
}

/* Our own wait event, shown in pg_stat_activity while the worker sleeps. */
static inline uint32
plh_wait_event(const char *name)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	(void) name;
	return PG_WAIT_EXTENSION;
#endif
}

/* A wait event set for the life of the process. */
static inline WaitEventSet *
plh_create_wait_event_set(int n_events)
{
#if PG_VERSION_NUM >= 170000
	return CreateWaitEventSet(NULL, n_events);
#else
	return CreateWaitEventSet(TopMemoryContext, n_events);
#endif
}

#if PG_VERSION_NUM >= 180000
#define PLH_STATE_CASE_STARTING case STATE_STARTING: return PLH_STATE_STARTING;
#else
#define PLH_STATE_CASE_STARTING
#endif

#endif							/* PLH_COMPAT_H */
