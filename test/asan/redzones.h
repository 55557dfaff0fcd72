/*
 * redzones.h
 *		Shows the address sanitizer what it does not see of a server process by
 *		itself.  test/tools/asan.sh has it included before each file of the shim;
 *		no other build knows it.
 *
 * The sanitizer's library comes with the shim, when the server has long bound
 * malloc() and memcpy() to libc.  So memory of the server has no red zones, and
 * what memcpy() touches is not looked at.  Here
 *
 * - what the shim allocates, and its parts of shared memory, get a red zone behind
 *	 them; what it frees stays poisoned until its context is emptied;
 * - memcpy() and its relatives go through the sanitizer.
 *
 * Shadow memory belongs to a process, and is inherited: what the postmaster poisons
 * is so for all.  Left out are shared memory after a crash (it moves), memory that
 * server functions allocate, and buffers of Go.
 */
#ifndef PLH_REDZONES_H
#define PLH_REDZONES_H

#include "postgres.h"

#include <dlfcn.h>
#include <sanitizer/asan_interface.h>

#include "storage/shmem.h"
#include "utils/memutils.h"

extern void *__asan_memcpy(void *to, const void *from, uintptr_t n);
extern void *__asan_memmove(void *to, const void *from, uintptr_t n);
extern void *__asan_memset(void *to, int c, uintptr_t n);
extern void __ubsan_handle_add_overflow(void *data, void *left, void *right);
extern const char *__ubsan_default_options(void);

/*
 * Reports go to files in a directory, address.PID and undefined.PID.  The option
 * log_path is not enough: the library of undefined behaviour reads its options with
 * its first report, when the name of the process has taken the place of the environment,
 * and gives that path to the other one, not to itself.
 */
__attribute__((unused)) static inline const char *
plh_red_path(char path[MAXPGPATH], const char *file)
{
	const char *directory = getenv("PLH_SANITIZER_REPORTS");

	snprintf(path, MAXPGPATH, "%s/%s", directory ? directory : ".", file);
	return path;
}

__attribute__((weak)) const char *
__ubsan_default_options(void)
{
	static char options[MAXPGPATH + 64];
	char		path[MAXPGPATH];

	snprintf(options, sizeof(options), "print_stacktrace=1:halt_on_error=0:log_path=%s", plh_red_path(path, "address"));
	return options;
}

__attribute__((constructor)) static void
plh_red_reports(void)
{
	char		path[MAXPGPATH];
	Dl_info		library;
	void	   *handle = dladdr((const void *) __ubsan_handle_add_overflow, &library) != 0 ? dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
	void		(*set_path) (const char *) = handle != NULL ? (void (*) (const char *)) dlsym(handle, "__sanitizer_set_report_path") : NULL;

	if (set_path != NULL)
		set_path(plh_red_path(path, "undefined"));
}

/* A granule of the shadow is 8 bytes; more finds what strides further. */
#define PLH_RED 256

#define PLH_RED_MAGIC UINT64CONST(0x9c4b1f02d7e6a358)

/* Before each chunk: the magic is where a chunk of the server has its own header. */
typedef struct PlhRedChunk
{
	MemoryContextCallback emptied;
	Size		size;
	uint64		unused[3];
	uint64		magic;
} PlhRedChunk;

static inline void
plh_red_emptied(void *arg)
{
	PlhRedChunk *chunk = arg;

	__asan_unpoison_memory_region(chunk + 1, chunk->size + PLH_RED);
}

__attribute__((unused)) static void *
plh_red_alloc(MemoryContext context, Size size, int flags)
{
	PlhRedChunk *chunk = MemoryContextAllocExtended(context, sizeof(PlhRedChunk) + size + PLH_RED, flags | MCXT_ALLOC_HUGE);

	StaticAssertStmt(sizeof(PlhRedChunk) == 64, "the magic is not where it has to be");
	chunk->size = size;
	chunk->magic = PLH_RED_MAGIC;
	if (context != TopMemoryContext)
	{
		chunk->emptied.func = plh_red_emptied;
		chunk->emptied.arg = chunk;
		MemoryContextRegisterResetCallback(context, &chunk->emptied);
	}
	__asan_poison_memory_region((char *) (chunk + 1) + size, PLH_RED);
	return chunk + 1;
}

__attribute__((unused, no_sanitize_address)) static void
plh_red_free(void *pointer)
{
	PlhRedChunk *chunk = (PlhRedChunk *) pointer - 1;

	if (chunk->magic == PLH_RED_MAGIC)
		__asan_poison_memory_region(pointer, chunk->size);
	else
		pfree(pointer);
}

__attribute__((unused)) static void *
plh_red_shmem(const char *name, Size size, bool *found)
{
	char	   *memory = ShmemInitStruct(name, size + PLH_RED, found);

	__asan_poison_memory_region(memory + size, PLH_RED);
	return memory;
}

/* Reads what is poisoned, so that it is reported. */
__attribute__((unused)) static inline const void *
plh_red_look(const void *memory, size_t n)
{
	if (n > 0)
	{
		volatile const char *bad = __asan_region_is_poisoned(unconstify(void *, memory), n);

		if (bad != NULL)
			(void) *bad;
	}
	return memory;
}

#define MemoryContextAlloc(context, size) plh_red_alloc(context, size, 0)
#define MemoryContextAllocHuge(context, size) plh_red_alloc(context, size, 0)
#define MemoryContextAllocZero(context, size) plh_red_alloc(context, size, MCXT_ALLOC_ZERO)
#define palloc(size) plh_red_alloc(CurrentMemoryContext, size, 0)
#define palloc0(size) plh_red_alloc(CurrentMemoryContext, size, MCXT_ALLOC_ZERO)
#define palloc_extended(size, flags) plh_red_alloc(CurrentMemoryContext, size, flags)
#define pfree(pointer) plh_red_free(pointer)
#define ShmemInitStruct(name, size, found) plh_red_shmem(name, size, found)

#undef memcpy
#undef memmove
#undef memset
#undef memcmp
#undef strnlen
#define memcpy(to, from, n) __asan_memcpy(to, from, n)
#define memmove(to, from, n) __asan_memmove(to, from, n)
#define memset(to, c, n) __asan_memset(to, c, n)
#define memcmp(a, b, n) (memcmp) (plh_red_look(a, n), plh_red_look(b, n), n)
#define strnlen(text, n) (strnlen) (plh_red_look(text, Min(n, 1)), n)

#endif							/* PLH_REDZONES_H */
