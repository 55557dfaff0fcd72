//go:build faultinject

package main

/*
#include <pthread.h>

static void *
write_nowhere(void *nowhere)
{
	*(volatile int *) nowhere = 1;
	return NULL;
}

// A thread that runs no goroutine, as some of the runtime's own.
static void
fault_on_bare_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, write_nowhere, NULL);
}
*/
import "C"

import (
	"os"
	"runtime"
	"strings"
	"syscall"
)

// faultFile lies in the data directory, the worker's working directory.
const faultFile = "pg_lock_history_fault"

// fault acts out the death that a test asks for by writing its name to
// faultFile. Only the test build has it.
func fault() func() {
	return func() {
		raw, err := os.ReadFile(faultFile)
		if err != nil || os.Remove(faultFile) != nil {
			return
		}
		actOut(strings.TrimSpace(string(raw)))
	}
}

func actOut(kind string) {
	switch kind {
	case "panic":
		panic("fault: panic on the main goroutine")
	case "goroutine-panic":
		go func() { panic("fault: panic in a goroutine") }()
	case "concurrent-map":
		m := map[int]int{}
		for range 2 {
			go func() {
				for i := 0; ; i++ {
					m[i&7] = i
				}
			}()
		}
	case "stack-overflow":
		go func() { overflow(0) }()
	case "stack-overflow-main":
		overflow(0)
	case "fault": // what a fault inside the runtime does
		go func() {
			runtime.LockOSThread()
			_, _, _ = syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(syscall.Gettid()), uintptr(syscall.SIGSEGV))
		}()
	case "bare-thread-fault":
		C.fault_on_bare_thread()
	case "loop":
		spin()
	case "loop-beside":
		go spin()
	}
}

//go:noinline
func overflow(n int) int { return overflow(n+1) + n }

// spin has no call and no memory access that the scheduler could use.
//
//go:noinline
func spin() {
	for i := 0; ; i++ {
		if i < 0 {
			i = 0
		}
	}
}
