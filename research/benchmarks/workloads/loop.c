/*
 * loop N BYTES PASSES: N processes that walk through a working set of their own.
 *
 * Each reads and writes its BYTES, one cache line at a time in an order that
 * prefetchers do not guess, PASSES times. Beyond the size of a cache the time
 * of a pass tells what a migration or a neighbour costs: that is the part that
 * a policy simulator has only as a cost model. Prints: N, bytes, wall seconds,
 * CPU seconds of the children.
 *
 *   cc -O2 -o loop loop.c && for n in 1 2 4 8; do ./loop $n 4194304 200; done
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINE 64

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* A single cycle through all lines (Sattolo's shuffle), so that every line is
 * visited once a pass and each address depends on the one before. */
static size_t *cycle(size_t lines)
{
	size_t *next = malloc(lines * LINE);
	size_t *order = malloc(lines * sizeof *order);

	if (next == NULL || order == NULL)
		return NULL;
	for (size_t i = 0; i < lines; i++)
		order[i] = i;
	srand(1);
	for (size_t i = lines - 1; i > 0; i--) {
		size_t j = (size_t)rand() % i;
		size_t kept = order[i];

		order[i] = order[j];
		order[j] = kept;
	}
	for (size_t i = 0; i < lines; i++)
		next[order[i] * (LINE / sizeof *next)] = order[(i + 1) % lines];
	free(order);
	return next;
}

static int walk(size_t bytes, long passes)
{
	size_t lines = bytes / LINE;
	size_t *next = cycle(lines);

	if (next == NULL)
		return 1;
	volatile size_t at = 0;

	for (long p = 0; p < passes; p++) {
		for (size_t i = 0; i < lines; i++) {
			size_t *line = &next[at * (LINE / sizeof *next)];

			line[1]++; /* dirty it: a migration has to fetch it back */
			at = line[0];
		}
	}
	free(next);
	return 0;
}

int main(int argc, char **argv)
{
	int n = argc == 4 ? atoi(argv[1]) : 0;
	long bytes = argc == 4 ? atol(argv[2]) : 0;
	long passes = argc == 4 ? atol(argv[3]) : 0;

	if (n < 1 || n > 10000 || bytes < 2 * LINE || passes < 1) {
		fprintf(stderr, "usage: loop N BYTES PASSES\n");
		return 2;
	}
	double begin = now();

	for (int i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("loop: fork");
			return 1;
		}
		if (pid == 0)
			_exit(walk((size_t)bytes, passes));
	}
	int status, failed = 0;

	while (wait(&status) > 0)
		failed |= status != 0;
	if (failed) {
		fprintf(stderr, "loop: a process had no memory for %ld bytes\n", bytes);
		return 1;
	}
	double wall = now() - begin;
	struct rusage used;

	getrusage(RUSAGE_CHILDREN, &used);
	printf("%d %ld %.4f %.4f\n", n, bytes, wall,
	       used.ru_utime.tv_sec + used.ru_utime.tv_usec * 1e-6 +
	       used.ru_stime.tv_sec + used.ru_stime.tv_usec * 1e-6);
	return 0;
}
