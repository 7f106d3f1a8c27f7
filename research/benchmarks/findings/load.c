/*
 * One thing that threads do, for research/benchmarks/findings.py: it makes a load that is known.
 *
 *     load NAME spin
 *     load NAME beat BUSY_US SLEEP_US       computes and sleeps in turn
 *     load NAME hop EVERY_US                computes, and moves to CPU 0 or 1 by its own mask
 *     load NAME flood                       sends datagrams to itself over the loopback device
 *     load NAME storm                       two threads that wake each other without end
 *     load NAME disk                        reads 4 KiB of a disk, computes for 20 us, in turn
 *     load NAME ahead                       the same, but asks for them ahead, and sleeps 1 ms
 *     load NAME relay EVERY_US CPU [CPU]    a thread that is woken from these CPUs in turn
 *     load NAME lock PROTOCOL CPU           on one CPU NAME-low (fair) holds a lock for 5 ms of
 *                                           computing at a time, which NAME-high (FIFO 20) asks for
 *                                           every 100 ms; meanwhile NAME-mid (FIFO 10) computes 20
 *                                           of 40 ms. PROTOCOL: none or inherit (of priorities)
 *
 * Its threads are called NAME; NICE=N in the environment is their nice level. It ends when it is
 * killed, or after 60 seconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char *name;

static void check(int failed, const char *what) {
    if (failed) {
        perror(what);
        exit(1);
    }
}

static void call_me(const char *suffix) {
    char text[16];
    snprintf(text, sizeof text, "%s%s", name, suffix);
    prctl(PR_SET_NAME, text);
}

static long now_us(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1000000L + at.tv_nsec / 1000;
}

/* Computes for some CPU time of its own, not for a time of the clock on the wall. */
static void compute(long us) {
    long until = now_us(CLOCK_THREAD_CPUTIME_ID) + us;
    while (now_us(CLOCK_THREAD_CPUTIME_ID) < until)
        ;
}

static void rest(long us) {
    struct timespec length = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&length, NULL);
}

static void use_cpu(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    check(sched_setaffinity(0, sizeof set, &set), "sched_setaffinity");
}

static void be_fifo(int priority) {
    struct sched_param how = {priority};
    check(sched_setscheduler(0, SCHED_FIFO, &how), "sched_setscheduler");
}

static void start(void *(*body)(void *), void *with) {
    pthread_t thread;
    check(pthread_create(&thread, NULL, body, with), "pthread_create");
}

static void flood(void) {
    int to = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof place;
    char text[1400] = "";
    check(to < 0 || bind(to, (void *)&place, sizeof place), "bind");
    check(getsockname(to, (void *)&place, &size), "getsockname");
    /* Nobody reads: when the socket is full, the softirq drops what comes. */
    for (;;)
        sendto(to, text, sizeof text, MSG_DONTWAIT, (void *)&place, sizeof place);
}

/* Of a file below /var/tmp, whose pages are not in memory when they are read or asked for. */
static void use_disk(int ahead) {
    enum { SIZE = 4096, STEP = 1 << 20, STEPS = 64 };
    char path[] = "/var/tmp/load.XXXXXX", text[SIZE];
    int file = mkstemp(path);
    check(file < 0 || unlink(path), "mkstemp");
    memset(text, 'x', sizeof text);
    for (int step = 0; step < STEPS; step++)
        check(pwrite(file, text, SIZE, (off_t)step * STEP) != SIZE, "pwrite");
    check(fsync(file), "fsync");
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
    for (int step = 0;; step = (step + 1) % STEPS) {
        off_t at = (off_t)step * STEP;
        if (ahead) {
            posix_fadvise(file, at, SIZE, POSIX_FADV_WILLNEED);
            rest(1000);
        }
        check(pread(file, text, SIZE, at) != SIZE, "pread");
        compute(20);
        posix_fadvise(file, at, SIZE, POSIX_FADV_DONTNEED);
    }
}

static int there[2], back[2];

static void *echo(void *with) {
    char byte;
    call_me("");
    while (read(there[0], &byte, 1) == 1)
        check(write(back[1], &byte, 1) != 1, "write");
    return with;
}

static void storm(void) {
    char byte = 0;
    check(pipe(there) || pipe(back), "pipe");
    start(echo, NULL);
    while (write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1)
        ;
}

static long every;

static void *woken(void *with) {
    char byte;
    call_me("");
    while (read(there[0], &byte, 1) == 1)
        compute(every / 4);
    return with;
}

static int cpus[2];

/* Each of two wakers has every second turn. */
static void *waker(void *with) {
    int me = (int)(long)with;
    long begin = now_us(CLOCK_MONOTONIC) / (2 * every) * (2 * every) + me * every;
    call_me("-waker");
    use_cpu(cpus[me]);
    for (;;) {
        begin += 2 * every;
        long now = now_us(CLOCK_MONOTONIC);
        /* Late, as after a stop: what was missed is not made up for. */
        if (begin < now)
            begin = (now / (2 * every) + 1) * 2 * every + me * every;
        rest(begin - now);
        check(write(there[1], "", 1) != 1, "write");
        compute(every / 2);
    }
    return with;
}

static void relay(char **given, int count) {
    every = atol(given[0]);
    cpus[0] = atoi(given[1]);
    cpus[1] = atoi(given[count - 1]);
    check(pipe(there), "pipe");
    start(waker, (void *)0);
    start(waker, (void *)1);
    woken(NULL);
}

static pthread_mutex_t lock;

static void *high(void *with) {
    call_me("-high");
    be_fifo(20);
    for (;;) {
        rest(100000);
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
    }
    return with;
}

static void *mid(void *with) {
    call_me("-mid");
    be_fifo(10);
    for (;;) {
        compute(20000);
        rest(20000);
    }
    return with;
}

static void contend(char **given) {
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    if (!strcmp(given[0], "inherit"))
        pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&lock, &how);
    use_cpu(atoi(given[1]));
    start(high, NULL);
    start(mid, NULL);
    call_me("-low");
    for (;;) {
        pthread_mutex_lock(&lock);
        compute(5000);
        pthread_mutex_unlock(&lock);
        rest(1000);
    }
}

int main(int count, char **given) {
    if (count < 3)
        return 64;
    name = given[1];
    call_me("");
    alarm(60);
    check(getenv("NICE") && nice(atoi(getenv("NICE"))) == -1, "nice");
    const char *what = given[2];
    char **rest_of = given + 3;
    int left = count - 3;
    if (!strcmp(what, "spin") && left == 0)
        for (;;)
            compute(1000000);
    if (!strcmp(what, "beat") && left == 2)
        for (;;) {
            compute(atol(rest_of[0]));
            rest(atol(rest_of[1]));
        }
    if (!strcmp(what, "hop") && left == 1)
        for (int cpu = 0;; cpu ^= 1) {
            use_cpu(cpu);
            compute(atol(rest_of[0]));
        }
    if (!strcmp(what, "flood") && left == 0)
        flood();
    if ((!strcmp(what, "disk") || !strcmp(what, "ahead")) && left == 0)
        use_disk(!strcmp(what, "ahead"));
    if (!strcmp(what, "storm") && left == 0)
        storm();
    if (!strcmp(what, "relay") && (left == 2 || left == 3))
        relay(rest_of, left);
    if (!strcmp(what, "lock") && left == 2)
        contend(rest_of);
    return 64;
}
