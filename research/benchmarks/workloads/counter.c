/*
 * counter N SECONDS_OF_WORK: N processes that only count.
 *
 * Each child counts to the same number, chosen so that one child alone takes
 * SECONDS_OF_WORK; the parent waits for all. With P CPUs and no loss the wall
 * time is WORK * max(1, N / P); a scheduler that never moves a thread needs
 * WORK * ceil(N / P). Prints: N, wall seconds, CPU seconds of the children,
 * and the wall seconds of the work alone.
 *
 *   cc -O2 -o counter counter.c && for n in 1 2 3 4; do ./counter $n 0.15; done
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void count(unsigned long to)
{
	for (volatile unsigned long i = 0; i < to; i++)
		;
}

/* How far one process counts in `seconds`: the best of three, so that an
 * interruption does not make the work look longer than it is. */
static unsigned long calibrate(double seconds)
{
	const unsigned long probe = 20 * 1000 * 1000;
	double best = 1e9;

	for (int i = 0; i < 3; i++) {
		double begin = now();

		count(probe);
		double took = now() - begin;
		if (took < best)
			best = took;
	}
	return (unsigned long)(probe * (seconds / best));
}

int main(int argc, char **argv)
{
	int n = argc == 3 ? atoi(argv[1]) : 0;
	double work = argc == 3 ? atof(argv[2]) : 0;

	if (n < 1 || n > 10000 || work <= 0 || work > 3600) {
		fprintf(stderr, "usage: counter N SECONDS_OF_WORK\n");
		return 2;
	}
	unsigned long to = calibrate(work);
	double begin = now();

	for (int i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("counter: fork");
			return 1;
		}
		if (pid == 0) {
			count(to);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
	double wall = now() - begin;
	struct rusage used;

	getrusage(RUSAGE_CHILDREN, &used);
	printf("%d %.4f %.4f %.4f\n", n, wall,
	       used.ru_utime.tv_sec + used.ru_utime.tv_usec * 1e-6 +
	       used.ru_stime.tv_sec + used.ru_stime.tv_usec * 1e-6, work);
	return 0;
}
