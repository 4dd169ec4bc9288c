/*
 * System calls as 32-bit processes make them, a thousand times each: with gcc -m32 by such a process, otherwise by int $0x80 in a 64-bit one, which leaves
 * more in the registers than the call takes. It begins when its standard input ends. Needs no libc.
 */
enum { read_ = 3, getppid_ = 64, umask_ = 60, prctl_ = 172, socketcall_ = 102, mremap_ = 163, exit_group_ = 252, rounds = 1000 };

static long call(long nr, unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e, unsigned long f)
{
	long ret;
	unsigned long args[7] = { nr, a, b, c, d, e, f };

#if defined(__i386__)
	__asm__ volatile("push %%ebp; push %%ebx; mov %1, %%eax; mov 4(%%eax), %%ebx; mov 8(%%eax), %%ecx; mov 12(%%eax), %%edx; mov 16(%%eax), %%esi;"
			 "mov 20(%%eax), %%edi; mov 24(%%eax), %%ebp; mov (%%eax), %%eax; int $0x80; pop %%ebx; pop %%ebp"
			 : "=a"(ret) : "r"(args) : "ecx", "edx", "esi", "edi", "memory");
#else
	__asm__ volatile("push %%rbp; push %%rbx; mov %1, %%rax; mov 8(%%rax), %%rbx; mov 16(%%rax), %%rcx; mov 24(%%rax), %%rdx; mov 32(%%rax), %%rsi;"
			 "mov 40(%%rax), %%rdi; mov 48(%%rax), %%rbp; mov (%%rax), %%rax; int $0x80; pop %%rbx; pop %%rbp"
			 : "=a"(ret) : "r"(args) : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory");
#endif
	return ret;
}

static char byte; /* at an address of 32 bits */

void _start(void)
{
	/* Of 64 bits the upper half does not count. */
	unsigned long more = sizeof(long) == 8 ? 0x7777UL << 16 << 16 : 0;

	call(read_, 0, (unsigned long)&byte, 1, 0, 0, 0);
	for (int i = 0; i < rounds; i++) {
		call(getppid_, 0, 0, 0, 0, 0, 0);
		call(prctl_, more + 4242, more + 12, more + 13, more + 14, more + 15, more + 16);
		call(umask_, 022, 0, 0, 0, 0, 0);
		call(socketcall_, 99, 0, 0, 0, 0, 0);
		call(mremap_, 4096, 8192, 12288, 0, 16384, 0);
	}
	call(exit_group_, 0, 0, 0, 0, 0, 0);
	__builtin_unreachable();
}
