// What the fixtures are made of: make.sh compiles it. It has no library, so that they are small.
static inline __attribute__((always_inline)) long call(long nr, long a, long b)
{
	long result;
	asm volatile("syscall" : "=a"(result) : "0"(nr), "D"(a), "S"(b) : "rcx", "r11", "memory");
	return result;
}

namespace tiny {
struct Thing {
	long twice(int n);
};
// Calls getppid, and nobody else does.
__attribute__((noinline)) long Thing::twice(int n)
{
	call(110, 0, 0);
	return 2 * n;
}
} // namespace tiny

extern "C" __attribute__((noinline)) long caller(int n)
{
	tiny::Thing t;
	long r = t.twice(n);
	asm volatile("" ::: "memory");
	return r + 1;
}

// Calls getppid 100 times; with an argument it then sleeps a second.
extern "C" __attribute__((noreturn, used)) void begin(long *stack)
{
	long r = 0;
	for (int i = 0; i < 100; i++)
		r = caller(20);
	if (*stack > 1) {
		long second[2] = {1, 0};
		call(35, (long)second, 0);
	}
	for (;;)
		call(60, r, 0);
}

asm(".globl _start\n.type _start, @function\n_start: xor %ebp, %ebp\nmov %rsp, %rdi\ncall begin\nhlt\n.size _start, .-_start");
