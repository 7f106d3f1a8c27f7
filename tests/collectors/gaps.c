/* gaps LOG THREADS SECONDS: threads that only compute, and note from inside when they did not run.
 *
 * Each reads its own schedstat (time on a CPU and time waiting for one, as the kernel counts them)
 * first and last, and between the two its clock, over and over. One line a thread:
 * tid, CLOCK_MONOTONIC at both readings, the difference of run_delay between them, and the longest
 * jump of the clock (ns). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct notes {
	long tid;
	long long begin, end, waited, longest;
};

static double seconds;

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long run_delay(long tid)
{
	char path[64];
	long long ran, waited;
	FILE *file;

	snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", tid);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%lld %lld", &ran, &waited) != 2)
		exit(1);
	fclose(file);
	return waited;
}

static void *compute(void *data)
{
	struct notes *notes = data;
	long long before, last, t;

	notes->tid = syscall(SYS_gettid);
	notes->begin = now();
	before = run_delay(notes->tid);
	for (last = now(); last < notes->begin + seconds * 1e9; last = t) {
		t = now();
		if (t - last > notes->longest)
			notes->longest = t - last;
	}
	notes->waited = run_delay(notes->tid) - before;
	notes->end = now();
	return NULL;
}

int main(int argc, char **argv)
{
	int i, n = argc == 4 ? atoi(argv[2]) : 0;
	struct notes *notes = calloc(n + 1, sizeof *notes);
	pthread_t *threads = calloc(n + 1, sizeof *threads);
	FILE *log;

	if (n < 1 || !notes || !threads)
		return 2;
	seconds = atof(argv[3]);
	for (i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, compute, &notes[i]))
			return 1;
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	log = fopen(argv[1], "w");
	if (!log)
		return 1;
	for (i = 0; i < n; i++)
		fprintf(log, "%ld %lld %lld %lld %lld\n", notes[i].tid, notes[i].begin, notes[i].end,
			notes[i].waited, notes[i].longest);
	return fclose(log) ? 1 : 0;
}
