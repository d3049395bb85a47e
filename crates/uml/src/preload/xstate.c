/*
 * Lets User-Mode Linux run on processors with more register state than it knows.
 *
 * It reserves 2,696 bytes for a process's extended registers, as much as AVX-512 needs. Where the processor has more (AMX), the host
 * returns the beginning of the state, but refuses to set a part: the machine dies before its first process runs ("ptrace
 * set fp regs failed, errno = 14"). This library, loaded before the C library, completes what is to be set with what the process has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

/* More than any processor has today: AMX makes it 11,008. */
static _Thread_local unsigned char whole[65536] __attribute__((aligned(64)));

typedef long ptrace_function(enum __ptrace_request, pid_t, void *, void *);

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_function *next;
	va_list list;
	va_start(list, request);
	pid_t process = va_arg(list, pid_t);
	void *address = va_arg(list, void *);
	void *data = va_arg(list, void *);
	va_end(list);
	if (!next)
		next = (ptrace_function *)dlsym(RTLD_NEXT, "ptrace");
	if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
		struct iovec *part = data;
		struct iovec all = { whole, sizeof whole };
		if (next(PTRACE_GETREGSET, process, address, &all) == 0 && all.iov_len > part->iov_len) {
			memcpy(whole, part->iov_base, part->iov_len);
			return next(request, process, address, &all);
		}
	}
	return next(request, process, address, data);
}
