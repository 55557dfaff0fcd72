/*
 * A disk that fails when told to: preloaded into a test's server.  While the
 * file named by PLH_BAD_DISK exists, what it says is done to paths that
 * contain a given string:
 *
 *   full PATH        what would make a file longer, or a new one, fails (ENOSPC)
 *   read-only PATH   opening for writing, and writing, fails (EROFS)
 *   broken PATH      writing fails (EIO)
 *   closed PATH      opening for writing fails (EACCES)
 *
 * Needs no rights and no mount, unlike a small file system of its own.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The error that befalls path, 0 for none. */
static int
fault_for(const char *path, int opens, int grows)
{
	const char *control = getenv("PLH_BAD_DISK");
	char		line[1024],
			   *victim;
	ssize_t		n;
	int			fd;

	if (control == NULL || (fd = syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC)) < 0)
		return 0;
	n = syscall(SYS_read, fd, line, sizeof(line) - 1);
	syscall(SYS_close, fd);
	if (n <= 0)
		return 0;
	line[n] = '\0';
	line[strcspn(line, "\n")] = '\0';
	if ((victim = strchr(line, ' ')) == NULL)
		return 0;
	*victim++ = '\0';
	if (strstr(path, victim) == NULL)
		return 0;
	if (strcmp(line, "full") == 0)
		return grows ? ENOSPC : 0;
	if (strcmp(line, "read-only") == 0)
		return EROFS;
	if (strcmp(line, "broken") == 0)
		return opens ? 0 : EIO;
	if (strcmp(line, "closed") == 0)
		return opens ? EACCES : 0;
	return 0;
}

/* The error that befalls a write of n bytes at offset; -1: at the file's position. */
static int
write_fault(int fd, off_t offset, size_t n)
{
	char		link[64],
				path[1024];
	struct stat st;
	ssize_t		len;

	if (getenv("PLH_BAD_DISK") == NULL)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	if (len <= 0 || path[0] != '/')
		return 0;
	path[len] = '\0';
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		return 0;
	if (offset < 0)
		offset = lseek(fd, 0, SEEK_CUR);
	return fault_for(path, 0, offset + (off_t) n > st.st_size);
}

static size_t
total(const struct iovec *iov, int n)
{
	size_t		bytes = 0;

	while (n-- > 0)
		bytes += iov[n].iov_len;
	return bytes;
}

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))
#define FAIL_IF(fault) do { int fault_ = (fault); if (fault_ != 0) { errno = fault_; return -1; } } while (0)

static int
open_fault(const char *path, int flags)
{
	char		whole[1024];

	if (getenv("PLH_BAD_DISK") == NULL || (flags & O_ACCMODE) == O_RDONLY)
		return 0;
	if (path[0] != '/' && getcwd(whole, sizeof(whole) / 2) != NULL)
	{
		size_t		len = strlen(whole);

		snprintf(whole + len, sizeof(whole) - len, "/%s", path);
		path = whole;
	}
	return fault_for(path, 1, (flags & O_CREAT) != 0 && access(path, F_OK) != 0);
}

int
open(const char *path, int flags,...)
{
	va_list		args;
	mode_t		mode;

	va_start(args, flags);
	mode = (flags & O_CREAT) ? va_arg(args, mode_t) : 0;
	va_end(args);
	FAIL_IF(open_fault(path, flags));
	return REAL(open) (path, flags, mode);
}

int
open64(const char *path, int flags,...)
{
	va_list		args;
	mode_t		mode;

	va_start(args, flags);
	mode = (flags & O_CREAT) ? va_arg(args, mode_t) : 0;
	va_end(args);
	FAIL_IF(open_fault(path, flags));
	return REAL(open64) (path, flags, mode);
}

ssize_t
write(int fd, const void *buf, size_t n)
{
	FAIL_IF(write_fault(fd, -1, n));
	return REAL(write) (fd, buf, n);
}

ssize_t
pwrite(int fd, const void *buf, size_t n, off_t offset)
{
	FAIL_IF(write_fault(fd, offset, n));
	return REAL(pwrite) (fd, buf, n, offset);
}

ssize_t
pwrite64(int fd, const void *buf, size_t n, off64_t offset)
{
	FAIL_IF(write_fault(fd, offset, n));
	return REAL(pwrite64) (fd, buf, n, offset);
}

ssize_t
pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
	FAIL_IF(write_fault(fd, offset, total(iov, count)));
	return REAL(pwritev) (fd, iov, count, offset);
}

ssize_t
pwritev64(int fd, const struct iovec *iov, int count, off64_t offset)
{
	FAIL_IF(write_fault(fd, offset, total(iov, count)));
	return REAL(pwritev64) (fd, iov, count, offset);
}

int
posix_fallocate(int fd, off_t offset, off_t n)
{
	int			fault = write_fault(fd, offset, n);

	return fault ? fault : REAL(posix_fallocate) (fd, offset, n);
}

int
posix_fallocate64(int fd, off64_t offset, off64_t n)
{
	int			fault = write_fault(fd, offset, n);

	return fault ? fault : REAL(posix_fallocate64) (fd, offset, n);
}
