/*
 * Workloads of known structure for a laboratory machine. Every thread writes, as the last thing
 * that it does, what the KERNEL counted for it: a line of tab-separated values
 *
 *     tid pid comm ts run_ns delay_ns switch_ins migrations voluntary involuntary
 *
 * (/proc/thread-self/schedstat and sched, "-" where a kernel has no such line, and getrusage), to
 * be compared with what a trace of the same seconds says up to `ts`, nanoseconds of CLOCK_MONOTONIC.
 * With - for FILE they write nothing, and end when their work is done.
 *
 *     work FILE hogs MILLISECONDS NICE[,NICE...]
 *     work FILE sleepers N PERIOD_US RUN_US ROUNDS HOGS
 *     work FILE server WORKERS REQUESTS GAP_US WORK_US
 *     work FILE pipes PAIRS MESSAGES
 *     work FILE forks AT_ONCE TOTAL WORK_US
 *     work FILE locks THREADS ROUNDS FREE_US HELD_US
 *     work FILE periodic THREADS PERIOD_US RUN_US ROUNDS
 *     work FILE groups MILLISECONDS FREE LIMITED
 *     work FILE mutex THREADS ROUNDS HELD_US FREE_US
 *     work FILE messages pipes|threads|sockets GROUPS MEMBERS ROUNDS
 *
 * Work is a number of loop iterations (LOOPS for a microsecond), not a time, so that a machine
 * whose time is counted in instructions does the same in every run. With CPUTIME in the
 * environment it is CPU time, for machines that share their cores with others, where the same loop
 * takes half as long at one moment as at another. SEED=N makes a repeat: other random numbers,
 * begun at another moment between two ticks.
 *
 * SETTINGS in the environment configures threads by their kind, as an administrator would:
 * "hog nice=10;sleeper class=fifo:10 cpus=0,1;limited group=/cgroup/limited".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOPS = 80, FEW = 64, STEP_US = 1370, TICK_US = 4000, LONG_US = 20 };

static uint64_t seed;

static int cputime;

static int truth = -1;

static void die(const char *what) {
    perror(what);
    _exit(1);
}

static void loop(long times) {
    for (; times > 0; times--)
        __asm__ volatile("" ::: "memory");
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* CPU time is told by short steps of the clock: in a long one somebody else ran. The kernel's own
   clock for it will not do, as a look at it makes the scheduler end slices between two ticks. */
static void burn(double us) {
    if (!cputime) {
        loop((long)(us * LOOPS));
        return;
    }
    for (double before = now_us(); us > 0;) {
        loop(LOOPS);
        double now = now_us(), step = now - before;
        us -= step < LONG_US ? step : 0.1;
        before = now;
    }
}

static void nap(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

/* The same numbers in every run (SplitMix64). */
static uint64_t chance(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double part(uint64_t *state) { return (double)(chance(state) >> 11) / 9007199254740992.0; }

static int slurp(const char *path, char *text, int size) {
    int file = open(path, O_RDONLY | O_CLOEXEC), length = 0, got;
    if (file < 0)
        return -1;
    while (length < size - 1 && (got = read(file, text + length, size - 1 - length)) > 0)
        length += got;
    close(file);
    text[length] = 0;
    return length;
}

/* The number in the line "KEY   :   NUMBER" of /proc/PID/sched. */
static const char *counted(const char *text, const char *key, char *number) {
    size_t length = strlen(key);
    strcpy(number, "-");
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (!strncmp(line, key, length) && (line[length] == ' ' || line[length] == ':')) {
            const char *colon = strchr(line, ':');
            if (colon)
                sscanf(colon + 1, " %30[0-9]", number);
            break;
        }
    }
    return number;
}

/* This thread's schedstat, read from its open file; returns its switch-ins. */
static unsigned long long look(int file, unsigned long long *run, unsigned long long *delay) {
    char text[128];
    unsigned long long ins = 0;
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = 0;
    sscanf(text, "%llu %llu %llu", run, delay, &ins);
    return ins;
}

static void testify(void) {
    if (truth < 0)
        return;
    static __thread char sched[8192], line[512];
    char comm[17] = "", migrations[32];
    unsigned long long run = 0, delay = 0, ins = 0, after, rest[2];
    struct timespec t = {0, 0};
    struct rusage used = {0};
    struct sched_param own = {0}, first = {sched_get_priority_max(SCHED_FIFO)};
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    /* Nobody's turn meanwhile: on an emulated CPU these files take longer to read than a slice of
       some kernels, and a thread that begins again after each would work as long again. */
    int class = sched_getscheduler(0);
    sched_getparam(0, &own);
    sched_setscheduler(0, SCHED_FIFO, &first);
    if (slurp("/proc/thread-self/sched", sched, sizeof sched) < 0)
        sched[0] = 0;
    /* Of one moment: again, if it was switched in between the first look and the last. */
    for (int more = 0; more < 20; more++) {
        ins = look(file, &run, &delay);
        getrusage(RUSAGE_THREAD, &used);
        clock_gettime(CLOCK_MONOTONIC, &t);
        after = look(file, &rest[0], &rest[1]);
        if (ins == after)
            break;
    }
    sched_setscheduler(0, class, &own);
    close(file);
    prctl(PR_GET_NAME, comm, 0, 0, 0);
    int length = snprintf(line, sizeof line, "%ld\t%d\t%s\t%llu\t%llu\t%llu\t%llu\t%s\t%ld\t%ld\n",
                          (long)syscall(SYS_gettid), (int)getpid(), comm,
                          t.tv_sec * 1000000000ull + t.tv_nsec, run, delay, ins,
                          counted(sched, "se.nr_migrations", migrations), used.ru_nvcsw,
                          used.ru_nivcsw);
    if (write(truth, line, length) != length)
        die("truth");
}

static void leave(void) {
    testify();
    _exit(0);
}

/* "fair", "batch", "idle", "fifo:N" or "rr:N" for this thread. */
static void set_class(const char *text) {
    static const struct {
        const char *name;
        int policy;
    } classes[] = {
        {"fair", SCHED_OTHER}, {"batch", SCHED_BATCH}, {"idle", SCHED_IDLE},
        {"fifo", SCHED_FIFO},  {"rr", SCHED_RR},
    };
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    struct sched_param level = {colon ? atoi(colon + 1) : 0};
    for (unsigned i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strlen(classes[i].name) == length && !strncmp(text, classes[i].name, length)) {
            if (sched_setscheduler(0, classes[i].policy, &level))
                die(text);
            return;
        }
    errno = EINVAL;
    die(text);
}

static void set_cpus(const char *text) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (const char *number = text; number; number = strchr(number, ','))
        CPU_SET(atoi(number += *number == ','), &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus))
        die(text);
}

static void set_group(const char *folder) {
    char path[128];
    snprintf(path, sizeof path, "%s/cgroup.procs", folder);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, "0", 1) != 1)
        die(path);
    close(file);
}

/* What SETTINGS says of threads of this kind, done to this thread. */
static void settle(const char *kind) {
    char text[256], *rest, *more, *words = text;
    snprintf(text, sizeof text, "%s", getenv("SETTINGS") ? getenv("SETTINGS") : "");
    for (char *one; (one = strtok_r(words, ";", &rest)); words = NULL) {
        char *word = strtok_r(one, " ", &more);
        if (!word || strcmp(word, kind))
            continue;
        while ((word = strtok_r(NULL, " ", &more))) {
            char *value = strchr(word, '=');
            if (!value)
                die(word);
            *value++ = 0;
            if (!strcmp(word, "nice"))
                setpriority(PRIO_PROCESS, 0, atoi(value));
            else if (!strcmp(word, "class"))
                set_class(value);
            else if (!strcmp(word, "cpus"))
                set_cpus(value);
            else if (!strcmp(word, "group"))
                set_group(value);
            else
                die(word);
        }
    }
}

/* In the child 0, called so and of that nice level. */
static pid_t start(const char *kind, int number, int nice_level) {
    char name[17];
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid)
        return pid;
    snprintf(name, sizeof name, "%s%d", kind, number);
    prctl(PR_SET_NAME, name, 0, 0, 0);
    setpriority(PRIO_PROCESS, 0, nice_level);
    settle(kind);
    return 0;
}

static void reap(void) {
    while (wait(NULL) > 0) {
    }
}

static void hogs(char **given) {
    double us = atof(given[0]) * 1000;
    int n = 0;
    for (char *nice_level = strtok(given[1], ","); nice_level; nice_level = strtok(NULL, ","), n++)
        if (!start("hog", n, atoi(nice_level))) {
            burn(us);
            leave();
        }
    reap();
}

static void sleepers(char **given) {
    int n = atoi(given[0]), rounds = atoi(given[3]), competitors = atoi(given[4]);
    long period = atol(given[1]), run = atol(given[2]);
    for (int i = 0; i < competitors; i++)
        if (!start("hog", i, 0)) {
            burn((double)period * rounds * 2 / (competitors + 1));
            leave();
        }
    for (int i = 0; i < n; i++)
        if (!start("sleeper", i, 0)) {
            uint64_t state = 77 + i + (seed << 32);
            struct timespec next;
            nap((long)(chance(&state) % (uint64_t)period));
            clock_gettime(CLOCK_MONOTONIC, &next);
            for (int round = 0; round < rounds; round++) {
                burn(run * (0.5 + part(&state)));
                next.tv_nsec += period * 1000;
                next.tv_sec += next.tv_nsec / 1000000000;
                next.tv_nsec %= 1000000000;
                clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
            }
            leave();
        }
    reap();
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static double queue[4096];
static int head, tail, closed;

static void *worker(void *number) {
    char name[17];
    snprintf(name, sizeof name, "worker%d", (int)(intptr_t)number);
    prctl(PR_SET_NAME, name, 0, 0, 0);
    settle("worker");
    for (;;) {
        pthread_mutex_lock(&lock);
        while (head == tail && !closed)
            pthread_cond_wait(&filled, &lock);
        int last = head == tail;
        double us = last ? 0 : queue[head++ % 4096];
        pthread_mutex_unlock(&lock);
        if (last)
            break;
        burn(us);
    }
    testify();
    return NULL;
}

static void server(char **given) {
    int n = atoi(given[0]), requests = atoi(given[1]);
    double gap = atof(given[2]), us = atof(given[3]);
    if (n > FEW || requests > 4096)
        exit(64);
    if (start("dispatcher", 0, 0)) {
        reap();
        return;
    }
    pthread_t threads[FEW];
    uint64_t state = 991 + (seed << 32);
    for (int i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i);
    for (int i = 0; i < requests; i++) {
        nap((long)(gap * 2 * part(&state)));
        pthread_mutex_lock(&lock);
        queue[tail++ % 4096] = us * (0.2 + 1.6 * part(&state));
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    closed = 1;
    pthread_cond_broadcast(&filled);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    leave();
}

/* Each writer burns, writes and waits for an answer. */
static void pipes(char **given) {
    int pairs = atoi(given[0]), messages = atoi(given[1]);
    for (int i = 0; i < pairs; i++) {
        int there[2], back[2];
        char c = 0;
        if (pipe(there) || pipe(back))
            die("pipe");
        if (!start("writer", i, 0)) {
            for (int n = 0; n < messages; n++) {
                burn(20);
                if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
                    die("writer");
            }
            leave();
        }
        if (!start("reader", i, 0)) {
            for (int n = 0; n < messages; n++) {
                if (read(there[0], &c, 1) != 1)
                    die("reader");
                burn(30);
                if (write(back[1], &c, 1) != 1)
                    die("reader");
            }
            leave();
        }
        close(there[0]), close(there[1]), close(back[0]), close(back[1]);
    }
    reap();
}

static int rounds_of_each;
static double free_us, held_us;

/* Works without the lock, then with it. */
static void *locker(void *number) {
    char name[17];
    uint64_t state = 501 + (uint64_t)(intptr_t)number + (seed << 32);
    snprintf(name, sizeof name, "locker%d", (int)(intptr_t)number);
    prctl(PR_SET_NAME, name, 0, 0, 0);
    settle("locker");
    for (int round = 0; round < rounds_of_each; round++) {
        burn(free_us * (0.2 + 1.6 * part(&state)));
        pthread_mutex_lock(&lock);
        burn(held_us * (0.2 + 1.6 * part(&state)));
        pthread_mutex_unlock(&lock);
    }
    testify();
    return NULL;
}

static void locks(char **given) {
    int n = atoi(given[0]);
    rounds_of_each = atoi(given[1]), free_us = atof(given[2]), held_us = atof(given[3]);
    if (n > FEW)
        exit(64);
    pthread_t threads[FEW];
    for (int i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, locker, (void *)(intptr_t)i);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

/* Each at its own rate, the slower the more it does: together they use the same share each. */
static void periodic(char **given) {
    int n = atoi(given[0]), rounds = atoi(given[3]);
    long period = atol(given[1]);
    double run = atof(given[2]);
    for (int i = 0; i < n; i++)
        if (!start("periodic", i, 0)) {
            uint64_t state = 177 + i + (seed << 32);
            long mine = period * (i + 2) / 2;
            struct timespec next;
            nap((long)(chance(&state) % (uint64_t)mine));
            clock_gettime(CLOCK_MONOTONIC, &next);
            for (int round = 0; round < rounds * 2 / (i + 2); round++) {
                burn(run * (i + 2) / 2 * (0.5 + part(&state)));
                next.tv_nsec += mine * 1000;
                next.tv_sec += next.tv_nsec / 1000000000;
                next.tv_nsec %= 1000000000;
                clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
            }
            leave();
        }
    reap();
}

/* Loops that are free, and others whose control group SETTINGS names. */
static void groups(char **given) {
    double us = atof(given[0]) * 1000;
    int unlimited = atoi(given[1]), limited = atoi(given[2]);
    for (int i = 0; i < unlimited + limited; i++)
        if (!start(i < unlimited ? "hog" : "limited", i, 0)) {
            burn(us);
            leave();
        }
    reap();
}

/* Like make -j: jobs that each have a child of their own. */
static void forks(char **given) {
    int most = atoi(given[0]), total = atoi(given[1]), running = 0;
    double us = atof(given[2]);
    uint64_t state = 31 + (seed << 32);
    for (int n = 0; n < total || running; n++) {
        if (n < total && !start("job", n, 0)) {
            if (!start("part", n, 0)) {
                burn(us * 0.2);
                leave();
            }
            burn(us * (0.3 + 1.4 * part(&state)));
            reap();
            leave();
        }
        part(&state);
        running += n < total;
        if (running >= most || n >= total)
            running -= wait(NULL) > 0;
    }
}

/* Threads of two kinds and one mutex: every other holds it ten times as long as the rest. */
static int mutex_rounds;
static double mutex_held_us, mutex_free_us;

static void *mutex_thread(void *number) {
    int i = (int)(intptr_t)number, n;
    char name[17];
    uint64_t state = 57 + i + (seed << 32);
    snprintf(name, sizeof name, "%s%d", i % 2 ? "long" : "short", i);
    prctl(PR_SET_NAME, name, 0, 0, 0);
    for (n = 0; n < mutex_rounds; n++) {
        burn(mutex_free_us * (0.5 + part(&state)));
        pthread_mutex_lock(&lock);
        burn(mutex_held_us * (i % 2 ? 1 : 0.1) * (0.5 + part(&state)));
        pthread_mutex_unlock(&lock);
    }
    testify();
    return NULL;
}

static void mutex(char **given) {
    int n = atoi(given[0]);
    pthread_t threads[FEW];
    mutex_rounds = atoi(given[1]), mutex_held_us = atof(given[2]), mutex_free_us = atof(given[3]);
    if (n > FEW)
        exit(64);
    if (start("mutex", 0, 0)) {
        reap();
        return;
    }
    for (int i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, mutex_thread, (void *)(intptr_t)i);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    leave();
}

/* Groups of as many writers as readers, by the scheme of `perf bench sched messaging`: each reader
   has a pipe or a socket, into which every writer of its group puts a message in each round. All
   begin when the gate is closed, in processes or in threads of one (`threads`, over pipes). */
enum { MESSAGE = 100 };

static int gate[2], message_members, message_rounds, message_sockets, message_threads;

static struct member {
    int number, writes;
    int (*ends)[2]; /* of the readers of the group */
} message_crowd[FEW * 2];

static void message_pass(int file, int writes) {
    char text[MESSAGE] = {0};
    for (int done = 0, got; done < MESSAGE; done += got) {
        got = writes ? write(file, text + done, MESSAGE - done)
                     : read(file, text + done, MESSAGE - done);
        if (got <= 0)
            die("message");
    }
}

static void message_talk(struct member *me) {
    char none;
    if (read(gate[0], &none, 1))
        die("gate");
    if (me->writes)
        for (int round = 0; round < message_rounds; round++)
            for (int i = 0; i < message_members; i++)
                message_pass(me->ends[i][1], 1);
    else
        for (int n = message_rounds * message_members; n > 0; n--)
            message_pass(me->ends[me->number % message_members][0], 0);
}

static void *message_thread(void *given) {
    struct member *me = given;
    char name[17];
    snprintf(name, sizeof name, "%s%d", me->writes ? "writer" : "reader", me->number);
    prctl(PR_SET_NAME, name, 0, 0, 0);
    message_talk(me);
    testify();
    return NULL;
}

static void messages(char **given) {
    int groups_of = atoi(given[1]), n = 0;
    static int ends[FEW][2];
    pthread_t threads[FEW * 2];
    message_threads = !strcmp(given[0], "threads"), message_sockets = !strcmp(given[0], "sockets");
    message_members = atoi(given[2]), message_rounds = atoi(given[3]);
    if (groups_of * message_members > FEW)
        exit(64);
    if (message_threads && start("main", 0, 0)) {
        reap();
        return;
    }
    if (pipe(gate))
        die("gate");
    for (int i = 0; i < groups_of * message_members; i++)
        if (message_sockets ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]) : pipe(ends[i]))
            die("ends");
    for (int i = 0; i < groups_of * message_members; i++)
        for (int writes = 0; writes < 2; writes++, n++) {
            struct member *me = &message_crowd[n];
            me->number = i, me->writes = writes;
            me->ends = ends + i / message_members * message_members;
            if (message_threads)
                pthread_create(&threads[n], NULL, message_thread, me);
            else if (!start(writes ? "writer" : "reader", i, 0)) {
                close(gate[1]);
                message_talk(me);
                leave();
            }
        }
    nap(20000);
    close(gate[1]);
    if (!message_threads) {
        reap();
        return;
    }
    while (n > 0)
        pthread_join(threads[--n], NULL);
    leave();
}

int main(int count, char **given) {
    static const struct {
        const char *name;
        int arguments;
        void (*run)(char **);
    } kinds[] = {
        {"hogs", 2, hogs}, {"sleepers", 5, sleepers}, {"server", 4, server},
        {"pipes", 2, pipes}, {"forks", 3, forks}, {"locks", 4, locks},
        {"periodic", 4, periodic}, {"groups", 3, groups}, {"mutex", 4, mutex},
        {"messages", 4, messages},
    };
    if (count < 3)
        return 64;
    if (strcmp(given[1], "-") && (truth = open(given[1], O_WRONLY | O_CREAT | O_APPEND, 0644)) < 0)
        die(given[1]);
    cputime = getenv("CPUTIME") != NULL;
    seed = getenv("SEED") ? strtoul(getenv("SEED"), NULL, 10) : 0;
    burn((double)(seed * STEP_US % TICK_US));
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(given[2], kinds[i].name) && count == 3 + kinds[i].arguments) {
            kinds[i].run(given + 3);
            testify();
            return 0;
        }
    return 64;
}
