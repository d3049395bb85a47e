/*
 * Writes down every request that User-Mode Linux's block driver makes to one disk image, in the order in which it makes them.
 *
 * The driver (arch/um/drivers/ubd_kern.c) hands its requests to a thread of its own, which reads their addresses from a socket and calls
 * pread64, pwrite64 or fallocate64 for each part (a page, mostly). Where a request lies is taken from what the thread has read, what it
 * is from the first such call. A flush has no parts, so the thread answers it without doing anything: it is written down when it is read. One address
 * at a time is given to the thread, so that a flush comes after the requests in front of it.
 *
 * Each request becomes one struct record in the file that BASALT_UML_REQUESTS names; BASALT_UML_IMAGE is the image. Without both nothing is
 * written down. BASALT_UML_DATA may name a file that gets the bytes of all writes, one behind the other. When a request cannot be written down, or is not as expected, the machine is ended: nothing is lost silently.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* As crates/uml/src/requests.rs reads it. */
struct record {
	uint64_t time_ns;
	uint64_t offset;
	uint64_t length;
	uint64_t kind;
};

enum kind { KIND_READ, KIND_WRITE, KIND_DISCARD, KIND_ZERO, KIND_FLUSH };

/* The driver's structures, the same in Linux 5.0 to 6.12. */
struct driver_part {
	char *buffer;
	unsigned long length;
	unsigned long sector_mask;
	unsigned long long cow_offset;
	unsigned long bitmap_words[2];
};

struct driver_request {
	void *request;
	int files[2];
	unsigned long offsets[2];
	unsigned long long offset;
	int sector_size;
	int error;
	int part_count;
	struct driver_part parts[];
};

static pid_t kernel_process;
static int record_file = -1;
static int data_file = -1;
static dev_t image_device;
static ino_t image_inode;
/* The request under way; of interest to the driver's thread only. */
static struct record current;
static int is_written;

__attribute__((constructor)) static void start(void)
{
	const char *records = getenv("BASALT_UML_REQUESTS");
	const char *image = getenv("BASALT_UML_IMAGE");
	const char *data = getenv("BASALT_UML_DATA");
	struct stat status;
	kernel_process = (pid_t)syscall(SYS_getpid);
	if (!records || !image || stat(image, &status) != 0)
		return;
	image_device = status.st_dev;
	image_inode = status.st_ino;
	record_file = open(records, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (data && (data_file = open(data, O_WRONLY | O_APPEND | O_CLOEXEC)) < 0)
		abort();
}

/* The driver's thread is a process of its own for the host, in the same memory. */
static int in_driver(void)
{
	return record_file >= 0 && (pid_t)syscall(SYS_getpid) != kernel_process;
}

static int is_image(int file)
{
	struct stat status;
	return fstat(file, &status) == 0 && status.st_dev == image_device && status.st_ino == image_inode;
}

static void write_down(enum kind kind)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	current.time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	current.kind = kind;
	if (write(record_file, &current, sizeof current) != sizeof current)
		abort();
	is_written = 1;
}

/* The thread begins with a request. */
static void begin(const struct driver_request *request)
{
	current = (struct record){ .offset = request->offset };
	is_written = 0;
	for (int i = 0; i < request->part_count; i++)
		current.length += request->parts[i].length;
	if (request->part_count == 0 && is_image(request->files[0])) {
		current.offset = 0;
		write_down(KIND_FLUSH);
	}
}

/* A part of the request has been done. */
static void done(int file, enum kind kind, uint64_t offset, uint64_t length)
{
	int error = errno;
	if (is_image(file)) {
		if (offset < current.offset || offset + length > current.offset + current.length)
			abort();
		if (!is_written)
			write_down(kind);
	}
	errno = error;
}

/* Keeps what was written. */
static void keep(int file, const void *bytes, size_t length)
{
	int error = errno;
	if (data_file >= 0 && is_image(file) && write(data_file, bytes, length) != (ssize_t)length)
		abort();
	errno = error;
}

typedef ssize_t read_function(int, void *, size_t);
typedef ssize_t pread_function(int, void *, size_t, off64_t);
typedef ssize_t pwrite_function(int, const void *, size_t, off64_t);
typedef int fallocate_function(int, int, off64_t, off64_t);

#define NEXT(type, name) \
	static type *next; \
	if (!next) \
		next = (type *)dlsym(RTLD_NEXT, name)

ssize_t read(int file, void *buffer, size_t length)
{
	NEXT(read_function, "read");
	const struct driver_request *request;
	if (length <= sizeof request || !in_driver())
		return next(file, buffer, length);
	ssize_t got = next(file, buffer, sizeof request);
	if (got == sizeof request) {
		memcpy(&request, buffer, sizeof request);
		begin(request);
	}
	return got;
}

ssize_t pread64(int file, void *buffer, size_t length, off64_t offset)
{
	NEXT(pread_function, "pread64");
	ssize_t got = next(file, buffer, length, offset);
	if (got > 0 && in_driver())
		done(file, KIND_READ, (uint64_t)offset, (uint64_t)got);
	return got;
}

ssize_t pwrite64(int file, const void *buffer, size_t length, off64_t offset)
{
	NEXT(pwrite_function, "pwrite64");
	ssize_t put = next(file, buffer, length, offset);
	if (put > 0 && in_driver()) {
		done(file, KIND_WRITE, (uint64_t)offset, (uint64_t)put);
		keep(file, buffer, (size_t)put);
	}
	return put;
}

int fallocate64(int file, int mode, off64_t offset, off64_t length)
{
	NEXT(fallocate_function, "fallocate64");
	int result = next(file, mode, offset, length);
	if (result == 0 && in_driver())
		done(file, mode & FALLOC_FL_PUNCH_HOLE ? KIND_DISCARD : KIND_ZERO, (uint64_t)offset, (uint64_t)length);
	return result;
}
