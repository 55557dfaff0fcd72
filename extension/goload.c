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
 * map write, a stack overflow) it raises SIGABRT; at a memory fault on one of its
 * threads it sends SIGQUIT to its own process, or passes the fault on.  Dying of
 * it would make the postmaster restart every session, so the handlers here turn
 * all of these into proc_exit(1) on the main thread: the postmaster logs exit code
 * 1 and starts the worker again.  Inside a probe the exit waits until the probe
 * leaves.  A fault of the main thread in C code is not contained: shared memory
 * cannot be trusted then, and the worker dies at once as any server process does.
 *
 * Dry run.  A runtime that cannot start (no threads, no address space) exits
 * by itself in ways that nobody can catch.  So a child process tries first, and
 * the library is loaded only when the child came through.
 *
 * Watchdog.  Go code that never comes back (a loop without calls can't be
 * preempted) would hold up a shutdown, and DROP DATABASE, which waits for every
 * process to answer.  A thread of C sleeps until SIGTERM is pending, the main
 * thread took one, or the postmaster is gone, and looks around every few seconds;
 * when the main thread then stays in Go for longer than a grace period, it ends
 * the worker on the route above.
 */
#include "plh.h"

#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "postmaster/postmaster.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"

#include "compat.h"

#define GO_LIBRARY "pg_lock_history_go.so"

/*
 * Handlers that run while the main thread is in Go use its alternate stack.
 * Go takes one that exists already instead of making its own of 32 kB, which
 * would be tight for proc_exit().
 */
#define SIGNAL_STACK_SIZE (256 * 1024)

/* The watchdog looks around this often, and more often once there is a reason. */
#define WATCHDOG_IDLE_MS 5000
#define WATCHDOG_BUSY_MS 50

/* The watchdog calls poll, nanosleep and kill. */
#define WATCHDOG_STACK_SIZE (64 * 1024)

/* Go may take this long after a shutdown request; an orderly end needs less. */
#define GRACE_AT_SHUTDOWN_MS 400

/* And this long otherwise: a turn takes milliseconds. */
#define GRACE_MS 15000

/* A worker that cannot even exit during a shutdown is killed after this long. */
#define LAST_RESORT_MS 3000

/* The dry run may take this long; it needs some milliseconds. */
#define DRY_RUN_MS 5000

/* Address space that the dry run must leave free for what comes later. */
#define DRY_RUN_SLACK (64 * 1024 * 1024)

/* Where the main thread is. Written by it alone, read by handlers and watchdog. */
enum
{
	IN_SERVER,					/* no Go frame below, or Go not loaded */
	LOADING,					/* Go is being loaded */
	IN_GO,
	IN_PROBE,					/* a probe called by Go */
	IN_WAIT						/* the wait probe: signals are let in */
};
static volatile sig_atomic_t place = IN_SERVER;

/* Raised each time the main thread enters Go; read by the watchdog. */
static volatile sig_atomic_t turns = 0;

/* Set by a handler, on any thread; never cleared. */
static volatile sig_atomic_t go_died = false;

/* Set by the watchdog before it raises SIGABRT on the main thread. */
static volatile sig_atomic_t go_hung = false;

/* What the watchdog waits for; written once before it starts. */
static int	sigterm_fd = -1;
static int	watchdog_fd = -1;

static pthread_t main_thread;
static pthread_t watchdog_thread;
static bool go_loaded = false;	/* Go's threads are there, whatever came of it */
static sigset_t mask_in_go;		/* written once before Go runs */
static PlhRunFunction go_run;

PLH_NORETURN static void die(void);

/*
 * Ends the worker.  Main thread, outside any probe, perhaps in a signal
 * handler that interrupted Go code: no code of the server is at work then.
 * Should libc be (Go starting a thread), this may block; during a shutdown the
 * watchdog has the last word.  Without one such a worker stays as it is, and DROP
 * DATABASE waits for it, until somebody sends it a SIGTERM.
 */
static void
die(void)
{
	place = IN_SERVER;
	ereport(LOG,
			(errmsg("pg_lock_history: %s, the worker ends and will be started again",
					go_hung ? "the analysis library did not come back in time"
					: "the analysis library has died"),
			 errdetail("Other sessions are not affected.")));
	proc_exit(1);
}

/* The Go runtime has given up.  Any thread, in a signal handler. */
static void
contain_death(void)
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
		case LOADING:
		case IN_GO:
			die();
			break;
		case IN_PROBE:
		case IN_WAIT:
			SetLatch(MyLatch);	/* the wait probe looks at go_died */
			break;
		default:
			break;				/* plh_run_go() looks at go_died */
	}
}

/* Gives a signal back its default action and dies of it. */
static void
die_of(int signo)
{
	signal(signo, SIG_DFL);
	raise(signo);
}

static void
abort_handler(int signo, siginfo_t *info, void *context)
{
	int			save_errno = errno;

	/* Not by this process: somebody wants a core file, and shall have it. */
	if (info->si_pid != getpid())
		die_of(signo);

	/* abort() in the server's own code, before Go was there. */
	if (place == IN_SERVER && !go_loaded)
		die_of(signo);
	contain_death();
	errno = save_errno;
}

/*
 * SIGQUIT of the postmaster means to leave at once.  Go sends itself the same
 * signal when it dies of a fault, to have all threads print their stacks.
 */
static void
quit_handler(int signo, siginfo_t *info, void *context)
{
	int			save_errno = errno;

	if (info->si_pid != getpid())
		PLH_CRASH_EXIT(signo);
	contain_death();
	errno = save_errno;
}

/*
 * Go installs its own handlers over these.  It passes on a fault in C code, and
 * one on a thread of its own that runs no goroutine.  Without this handler the
 * first would wait 10 s for other threads to print their stacks, with partition
 * locks perhaps held.  (That happens still when somebody sends the main thread
 * such a signal: Go does not pass that on.)
 */
static void
fault_handler(int signo, siginfo_t *info, void *context)
{
	bool		of_go;

	/* Sent by another process: it shall have what it asked for. */
	if (info->si_code <= 0 && info->si_pid != getpid())
		die_of(signo);

	if (pthread_equal(pthread_self(), main_thread))
		of_go = place == IN_GO || place == LOADING;
	else
		of_go = !pthread_equal(pthread_self(), watchdog_thread);
	if (of_go)
		contain_death();		/* comes back on no thread */
	die_of(signo);
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
 * The signalfd is polled and never read: it becomes readable while SIGTERM is
 * pending for the process, that is, while the main thread is in Go with the
 * signal blocked; the signal stays pending for the main thread.  Neither the
 * eventfd nor the postmaster's pipe is read: a reason stays one.
 */
static void *
watchdog(void *arg)
{
	const struct timespec pause = {0, WATCHDOG_BUSY_MS * 1000000L};
	struct pollfd reasons[3];
	int			waited_ms = 0;
	int			seen_turn = turns;

	reasons[0].fd = sigterm_fd;
	reasons[1].fd = watchdog_fd;
	reasons[2].fd = postmaster_alive_fds[POSTMASTER_FD_WATCH];
	reasons[0].events = reasons[1].events = reasons[2].events = POLLIN;

	for (;;)
	{
		bool		shutdown = poll(reasons, lengthof(reasons), WATCHDOG_IDLE_MS) > 0;
		int			turn = turns;

		if (shutdown)
			nanosleep(&pause, NULL);
		if (go_hung || (go_died && place == IN_SERVER))
		{
			/* The worker is about to end, and the process is still there. */
			waited_ms += shutdown ? WATCHDOG_BUSY_MS : 0;
			if (waited_ms >= LAST_RESORT_MS)
				kill(getpid(), SIGKILL);
			continue;
		}
		if ((place != IN_GO && place != LOADING) || (!shutdown && turn != seen_turn))
		{
			seen_turn = turn;
			waited_ms = 0;
			continue;
		}
		waited_ms += shutdown ? WATCHDOG_BUSY_MS : WATCHDOG_IDLE_MS;
		if (waited_ms >= (shutdown ? GRACE_AT_SHUTDOWN_MS : GRACE_MS))
		{
			go_hung = true;
			waited_ms = 0;
			pthread_kill(main_thread, SIGABRT);
		}
	}
	return NULL;
}

/* Everything the watchdog waits for; called with all signals blocked. */
static bool
start_watchdog(char *error, size_t error_room)
{
	pthread_attr_t attributes;
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
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, WATCHDOG_STACK_SIZE);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	result = pthread_create(&watchdog_thread, &attributes, watchdog, NULL);
	pthread_attr_destroy(&attributes);
	if (result != 0)
	{
		snprintf(error, error_room, "Could not start the watchdog thread: %s.", strerror(result));
		return false;
	}
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
	turns++;
	place = IN_GO;
	if (go_died)
		die();
}

void
plh_enter_wait(void)
{
	place = IN_WAIT;
	pthread_sigmask(SIG_SETMASK, &UnBlockSig, NULL);
}

void
plh_leave_wait(void)
{
	pthread_sigmask(SIG_SETMASK, &mask_in_go, NULL);

	/* Perhaps nobody has looked since the signal came. */
	if (ShutdownRequestPending)
		plh_alert_watchdog();
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
install_handler(int signo, void (*handler) (int, siginfo_t *, void *), char *error, size_t error_room)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = handler;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
	sigemptyset(&action.sa_mask);
	if (sigaction(signo, &action, NULL) == 0)
		return true;
	snprintf(error, error_room, "Could not install a handler for signal %d: %s.", signo, strerror(errno));
	return false;
}

static bool
install_handlers(char *error, size_t error_room)
{
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
	return install_handler(SIGABRT, abort_handler, error, error_room) &&
		install_handler(SIGQUIT, quit_handler, error, error_room) &&
		install_handler(SIGSEGV, fault_handler, error, error_room) &&
		install_handler(SIGBUS, fault_handler, error, error_room) &&
		install_handler(SIGILL, fault_handler, error, error_room) &&
		install_handler(SIGTRAP, fault_handler, error, error_room);
}

/* What the child of dry_run() does; it does not return. */
PLH_NORETURN static void try_library(const char *path);

static void
try_library(const char *path)
{
	const struct rlimit no_core = {0, 0};
	PlhInterfaceVersionFunction version;
	void	   *library;

	/* Whoever calls exit() in here must not run the worker's exit callbacks. */
	on_exit_reset();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_CORE, &no_core);
	signal(SIGTERM, SIG_DFL);

	if (mmap(NULL, DRY_RUN_SLACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		_exit(1);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	version = library ? (PlhInterfaceVersionFunction) dlsym(library, "plh_interface_version") : NULL;
	if (version != NULL)
		(void) version();
	_exit(0);					/* what dlopen has to say is asked again by the parent */
}

/*
 * Loads the library in a child process and sees whether that comes through.
 * The child shares our limits; it touches no shared memory, runs no exit
 * callbacks, and any end but the expected one is only a number to us.
 */
static bool
dry_run(const char *path, char *error, size_t error_room)
{
	const struct timespec pause = {0, 5 * 1000000L};
	const char *what = "did not start in time";
	int			waited_ms;
	int			status = 0;
	pid_t		child = fork();

	if (child < 0)
	{
		snprintf(error, error_room, "Could not make a process to try \"%s\" in: %s.", path, strerror(errno));
		return false;
	}
	if (child == 0)
		try_library(path);

	for (waited_ms = 0; waited_ms < DRY_RUN_MS; waited_ms += 5)
	{
		if (waitpid(child, &status, WNOHANG) == child)
		{
			if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
				return true;
			snprintf(error, error_room,
					 "The Go runtime does not start in this server process (%s %d).",
					 WIFSIGNALED(status) ? "signal" : "exit code",
					 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
			return false;
		}
		if (ShutdownRequestPending || !PostmasterIsAlive())
		{
			what = "was stopped while it was tried";
			break;
		}
		CHECK_FOR_INTERRUPTS();	/* others may wait for us to take a barrier */
		nanosleep(&pause, NULL);
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	snprintf(error, error_room, "The Go runtime %s.", what);
	return false;
}

/* dlopen and the first call, with the signals blocked by the caller. */
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
	go_loaded = true;
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
	if (found != PLH_INTERFACE)
	{
		snprintf(error, error_room, "Expected interface %#x in \"%s\", found %#x.", PLH_INTERFACE, path, found);
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
plh_load_go(char *error, size_t error_room, const char **hint)
{
	/* A death has to be noticed, a fault too, also while loading. */
	static const int not_blocked[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	char		path[MAXPGPATH];
	sigset_t	all;
	sigset_t	before;
	bool		loaded;
	size_t		i;

	*hint = "Install pg_lock_history again (both libraries from the same release), then reload the configuration.";
	if (!library_path(path, sizeof(path), error, error_room))
		return false;
	if (!dry_run(path, error, error_room))
	{
		*hint = "Raise the server's limits on address space (ulimit -v, LimitAS) or threads (ulimit -u, TasksMax) and restart it.";
		return false;
	}

	main_thread = pthread_self();
	mask_in_go = BlockSig;
	sigdelset(&mask_in_go, SIGQUIT);
	if (!install_handlers(error, error_room))
		return false;

	sigfillset(&all);
	for (i = 0; i < lengthof(not_blocked); i++)
		sigdelset(&all, not_blocked[i]);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	place = LOADING;
	loaded = start_watchdog(error, error_room) && load_blocked(path, error, error_room);
	place = IN_SERVER;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return loaded;
}

int
plh_run_go(PlhProbes *probes)
{
	int			code;

	pthread_sigmask(SIG_SETMASK, &mask_in_go, NULL);
	place = IN_GO;
	if (go_died)
		die();
	code = go_run(probes);
	place = IN_SERVER;
	pthread_sigmask(SIG_SETMASK, &UnBlockSig, NULL);
	return code;
}
