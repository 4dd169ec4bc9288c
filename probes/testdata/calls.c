// Makes system calls for TestAddAndRemove: reads a number from standard input, calls getppid that many times, and writes how many times
// it has called it. Each turn ends only when another one is asked for.
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
	long wanted;

	while (scanf("%ld", &wanted) == 1) {
		long made = 0;

		while (made < wanted) {
			syscall(SYS_getppid);
			made++;
		}
		printf("%ld\n", made);
		fflush(stdout);
	}
	return 0;
}
