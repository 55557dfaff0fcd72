/*
 * goload.c
 *		Loads the Go library into the worker and contains its death.  The only
 *		file that knows the rules of the Go runtime inside a server process:
 *
 * - Go is born in the worker, after fork, once, with every signal blocked: its
 *	 threads inherit that mask, so the server's signals reach the main thread
 *	 only.  It is never unloaded.
 * - The server's handlers are installed before (worker.c).  Go adds SA_ONSTACK
 *	 to them; a handler without it would run on a small goroutine stack.  A
 *	 later pqsignal() would drop the flag: there must be none.
 * - The server's latches read SIGURG through a signalfd, so it must be blocked
 *	 in every thread; Go's preemption by SIGURG is switched off by the linker
 *	 (-X runtime.godebugDefault=asyncpreemptoff=1).  Checked after loading.
 * - While the main thread is in Go, the server's signals are blocked, all but
 *	 SIGQUIT (an immediate shutdown has to work) and those that report a fault.
 *
 * Death.  When the Go runtime gives up (a panic nobody recovered, a concurrent
 * map write, a stack overflow) it raises SIGABRT.  Dying of it would make the
 * postmaster restart every session, so the handler here turns it into
 * proc_exit(1) on the main thread: the postmaster logs exit code 1 and starts
 * the worker again.  Inside a probe the exit waits until the probe leaves.
 *
 * Watchdog.  Go code that never comes back (a loop without calls can't be
 * preempted) would hold up a shutdown.  A thread of C sleeps until SIGTERM is
 * pending, the main thread took one, or the postmaster is gone; when the main
 * thread then stays in Go for longer than a grace period, it ends the worker on
 * the route above.
 */
#include "plh.h"

#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "storage/ipc.h"

#include "compat.h"

#define GO_LIBRARY "pg_lock_history_go.so"

/*
 * Handlers that run while the main thread is in Go use its alternate stack.
 * Go takes one that exists already instead of making its own of 32 kB, which
 * would be tight for proc_exit().
 */
#define SIGNAL_STACK_SIZE (256 * 1024)

/* Once there is a reason, the watchdog looks this often. */
#define WATCHDOG_PERIOD_MS 50

/* Go may take this long after a shutdown request; an orderly end needs less. */
#define WATCHDOG_GRACE_MS 400

/* Where the main thread is. Written by it alone, read by handler and watchdog. */
enum
{
	IN_SERVER,					/* no Go frame below, or Go not loaded */
	IN_GO,
	IN_PROBE,					/* a probe called by Go */
	IN_WAIT						/* the wait probe: signals are let in */
};
static volatile sig_atomic_t place = IN_SERVER;

/* Set by the SIGABRT handler, on any thread; never cleared. */
static volatile sig_atomic_t go_died = false;

/* Set by the watchdog before it raises SIGABRT on the main thread. */
static volatile sig_atomic_t go_hung = false;

/* What the watchdog waits for; written once before it starts. */
static int	sigterm_fd = -1;
static int	watchdog_fd = -1;

static pthread_t main_thread;
static sigset_t mask_in_go;		/* written once before Go runs */
static PlhRunFunction go_run;

static void die(void) pg_attribute_noreturn();

/* Ends the worker.  Main thread, outside any probe. */
static void
die(void)
{
	place = IN_SERVER;
	ereport(LOG,
			(errmsg("pg_lock_history: %s, the worker ends and will be started again",
					go_hung ? "the analysis library did not answer a shutdown request"
					: "the analysis library has died"),
			 errdetail("Other sessions are not affected.")));
	proc_exit(1);
}

static void
abort_handler(int signo)
{
	go_died = true;

	if (!pthread_equal(pthread_self(), main_thread))
	{
		/*
		 * A thread of Go.  The main thread may be frozen inside Go for good;
		 * the signal gets through to it.  This thread must not go on: it would
		 * return into a runtime that has given up.
		 */
		pthread_kill(main_thread, SIGABRT);
		for (;;)
			pause();
	}

	switch (place)
	{
		case IN_GO:
			die();
			break;
		case IN_PROBE:
		case IN_WAIT:
			SetLatch(MyLatch);	/* the wait probe looks at go_died */
			break;
		default:

			/*
			 * abort() in the server's own code: let it die as it would have
			 * without us.  Returning makes abort() raise the signal again
			 * with the default action.
			 */
			break;
	}
}

/* Called when a shutdown request has been taken and is about to be told to Go. */
void
plh_alert_watchdog(void)
{
	const uint64 one = 1;

	/* Fails only when the counter is full, and then the watchdog is awake. */
	if (write(watchdog_fd, &one, sizeof(one)) < 0)
		return;
}

/*
 * Sleeps without a timeout, so that a quiet worker costs nothing here.
 *
 * The signalfd is polled and never read: it becomes readable while SIGTERM is
 * pending for the process, that is, while the main thread is in Go with the
 * signal blocked; the signal stays pending for the main thread.
 */
static void *
watchdog(void *arg)
{
	const struct timespec period = {0, WATCHDOG_PERIOD_MS * 1000000L};
	struct pollfd reasons[3];
	int			waited_ms = 0;

	reasons[0].fd = sigterm_fd;
	reasons[1].fd = watchdog_fd;
	reasons[2].fd = postmaster_alive_fds[POSTMASTER_FD_WATCH];
	reasons[0].events = reasons[1].events = reasons[2].events = POLLIN;

	for (;;)
	{
		/* Neither the eventfd nor the postmaster's pipe is read: a reason stays. */
		if (poll(reasons, lengthof(reasons), -1) <= 0)
			continue;
		nanosleep(&period, NULL);
		if (place != IN_GO)
		{
			waited_ms = 0;
			continue;
		}
		waited_ms += WATCHDOG_PERIOD_MS;
		if (waited_ms >= WATCHDOG_GRACE_MS)
		{
			go_hung = true;
			pthread_kill(main_thread, SIGABRT);
			return NULL;
		}
	}
}

/* Everything the watchdog waits for; called with all signals blocked. */
static bool
start_watchdog(char *error, size_t error_room)
{
	pthread_t	thread;
	sigset_t	sigterm;
	int			result;

	sigemptyset(&sigterm);
	sigaddset(&sigterm, SIGTERM);
	sigterm_fd = signalfd(-1, &sigterm, SFD_NONBLOCK | SFD_CLOEXEC);
	watchdog_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (sigterm_fd < 0 || watchdog_fd < 0)
	{
		snprintf(error, error_room, "Could not make what the watchdog waits for: %s.", strerror(errno));
		return false;
	}
	result = pthread_create(&thread, NULL, watchdog, NULL);
	if (result != 0)
	{
		snprintf(error, error_room, "Could not start the watchdog thread: %s.", strerror(result));
		return false;
	}
	pthread_detach(thread);
	return true;
}

void
plh_enter_probe(void)
{
	place = IN_PROBE;
}

void
plh_leave_probe(void)
{
	place = IN_GO;
	if (go_died)
		die();
}

void
plh_enter_wait(void)
{
	place = IN_WAIT;
	PG_SETMASK(&UnBlockSig);
}

void
plh_leave_wait(void)
{
	pthread_sigmask(SIG_SETMASK, &mask_in_go, NULL);
	plh_leave_probe();
}

bool
plh_go_has_died(void)
{
	return go_died;
}

/* The Go library lies beside the shim, wherever that was installed. */
static bool
library_path(char *path, size_t room, char *error, size_t error_room)
{
	Dl_info		info;
	const char *slash;

	if (dladdr((void *) plh_load_go, &info) == 0 || info.dli_fname == NULL ||
		(slash = strrchr(info.dli_fname, '/')) == NULL)
	{
		snprintf(error, error_room, "The folder of pg_lock_history.so is not known.");
		return false;
	}
	snprintf(path, room, "%.*s/" GO_LIBRARY, (int) (slash - info.dli_fname), info.dli_fname);
	return true;
}

/*
 * True when SIGURG is blocked in every thread of this process.  Without /proc
 * only the calling thread can be asked.
 */
static bool
sigurg_is_blocked_everywhere(void)
{
	sigset_t	own;
	DIR		   *tasks;
	struct dirent *task;
	bool		blocked;

	pthread_sigmask(SIG_SETMASK, NULL, &own);
	blocked = sigismember(&own, SIGURG) == 1;

	tasks = opendir("/proc/self/task");
	if (tasks == NULL)
		return blocked;
	while (blocked && (task = readdir(tasks)) != NULL)
	{
		char		path[64];
		char		line[256];
		FILE	   *status;

		if (task->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", task->d_name);
		status = fopen(path, "r");
		if (status == NULL)
			continue;			/* a thread that has just ended */
		while (fgets(line, sizeof(line), status))
			if (strncmp(line, "SigBlk:", 7) == 0)
				blocked = (strtoull(line + 7, NULL, 16) >> (SIGURG - 1)) & 1;
		fclose(status);
	}
	closedir(tasks);
	return blocked;
}

static bool
install_abort_handler(char *error, size_t error_room)
{
	struct sigaction action;
	stack_t		stack;

	memset(&stack, 0, sizeof(stack));
	stack.ss_sp = mmap(NULL, SIGNAL_STACK_SIZE, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack.ss_size = SIGNAL_STACK_SIZE;
	if (stack.ss_sp == MAP_FAILED || sigaltstack(&stack, NULL) != 0)
	{
		snprintf(error, error_room, "Could not make a signal stack: %s.", strerror(errno));
		return false;
	}

	memset(&action, 0, sizeof(action));
	action.sa_handler = abort_handler;
	action.sa_flags = SA_ONSTACK | SA_NODEFER;
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGABRT, &action, NULL) != 0)
	{
		snprintf(error, error_room, "Could not install a handler for SIGABRT: %s.", strerror(errno));
		return false;
	}
	return true;
}

/* dlopen and the first call, with all signals blocked by the caller. */
static bool
load_blocked(const char *path, char *error, size_t error_room)
{
	PlhInterfaceVersionFunction version;
	struct sigaction urg;
	struct sigaction pipe;
	void	   *library;
	uint32		found;

	/* Go replaces these two; what was there is put back. */
	sigaction(SIGURG, NULL, &urg);
	sigaction(SIGPIPE, NULL, &pipe);

	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL)
	{
		snprintf(error, error_room, "%s", dlerror());
		return false;
	}
	version = (PlhInterfaceVersionFunction) dlsym(library, "plh_interface_version");
	go_run = (PlhRunFunction) dlsym(library, "plh_run");
	if (version == NULL || go_run == NULL)
	{
		snprintf(error, error_room, "\"%s\" is not the library of pg_lock_history.", path);
		return false;
	}

	/* The first call makes Go start its threads: they inherit our mask. */
	found = version();
	sigaction(SIGURG, &urg, NULL);
	sigaction(SIGPIPE, &pipe, NULL);
	if (found != PLH_INTERFACE_VERSION)
	{
		snprintf(error, error_room, "Expected interface version %d in \"%s\", found %u.",
				 PLH_INTERFACE_VERSION, path, found);
		return false;
	}
	if (!sigurg_is_blocked_everywhere())
	{
		snprintf(error, error_room,
				 "\"%s\" leaves SIGURG unblocked, which the server's latches need; it was not linked with asyncpreemptoff=1.",
				 path);
		return false;
	}
	return true;
}

bool
plh_load_go(char *error, size_t error_room)
{
	char		path[MAXPGPATH];
	sigset_t	all;
	sigset_t	before;
	bool		loaded;

	main_thread = pthread_self();
	if (!library_path(path, sizeof(path), error, error_room) ||
		!install_abort_handler(error, error_room))
		return false;

	mask_in_go = BlockSig;
	sigdelset(&mask_in_go, SIGQUIT);

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	/* The watchdog, too, inherits the full mask. */
	loaded = load_blocked(path, error, error_room) && start_watchdog(error, error_room);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return loaded;
}

int
plh_run_go(PlhProbes *probes)
{
	int			code;

	pthread_sigmask(SIG_SETMASK, &mask_in_go, NULL);
	place = IN_GO;
	code = go_run(probes);
	place = IN_SERVER;
	PG_SETMASK(&UnBlockSig);
	return code;
}
