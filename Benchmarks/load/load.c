// A load generator for what wrk cannot do: a fixed rate, and a window.
//
// * At a fixed rate (`--rate`), request k is due at start + k / rate, whatever became of the others, and its latency
//   counts from that moment: a server that stalls is charged for every request that should have been sent meanwhile
//   (no coordinated omission).
// * With a window (`--window`), standard input gives, line by line, how many messages may have been sent in total;
//   the writer of those lines keeps the number of unfinished messages bounded. Its end ends the run.
// * With neither, every connection sends its next request when it has the answer to the last.
//
// One thread, epoll, HTTP/1.1 keep-alive, loopback only. Prints one JSON object at the end.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { answerCapacity = 65536, bodiesCapacity = 8192, connectionsCapacity = 20000 };

static const char *const usage =
    "usage: load --port N --path P --bodies FILE [options]\n"
    "  --connections N   keep-alive connections (default 64)\n"
    "  --rate R          requests per second, open loop (default: as fast as answers come)\n"
    "  --window          read the total of messages that may be sent from standard input\n"
    "  --messages M      messages in each body, for --window (default 1)\n"
    "  --seconds S       measure this long (default 10)\n"
    "  --warmup S        and leave out the first S seconds (default 0)\n"
    "  --requests N      stop after N requests instead\n"
    "  --type T          content type (default application/json)\n"
    "  --header 'A: b'   one more header line\n"
    "FILE holds one body per line; they are sent in turn.\n";

static struct {
    int port, connections, messages;
    const char *path, *bodies, *type, *header;
    double rate, seconds, warmup;
    uint64_t requests;
    bool window;
} options = {.connections = 64, .messages = 1, .type = "application/json", .header = "", .seconds = 10};

// ---- Time and latencies

static int64_t nowNs(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/// Microseconds, exact below 128, then 64 steps per power of two: at most 1.6 % off, whatever the size.
enum { steps = 64, bucketCount = steps * 40 };
static uint64_t buckets[bucketCount], recorded;
static int64_t longestUs;

static int bucketOf(uint64_t us) {
    if (us < 2 * steps) return (int)us;
    int shift = 63 - __builtin_clzll(us) - 6;
    int bucket = steps * shift + (int)(us >> shift);
    return bucket < bucketCount ? bucket : bucketCount - 1;
}

/// The largest value that falls into `bucket`.
static uint64_t ceilingOf(int bucket) {
    if (bucket < 2 * steps) return (uint64_t)bucket;
    int shift = bucket / steps - 1;
    return (((uint64_t)(bucket - steps * shift) + 1) << shift) - 1;
}

static void record(int64_t us) {
    buckets[bucketOf(us < 0 ? 0 : (uint64_t)us)] += 1;
    recorded += 1;
    if (us > longestUs) longestUs = us;
}

static double percentileMs(double percent) {
    uint64_t wanted = (uint64_t)((double)recorded * percent / 100 + 0.999999), seen = 0;
    for (int bucket = 0; bucket < bucketCount; bucket++) {
        seen += buckets[bucket];
        if (seen >= wanted && seen > 0) {
            uint64_t us = ceilingOf(bucket);
            return (double)(us > (uint64_t)longestUs ? (uint64_t)longestUs : us) / 1000;
        }
    }
    return 0;
}

// ---- Requests

static struct { char *text; size_t size; } requests[bodiesCapacity];
static size_t requestKinds;

static void die(const char *what) {
    fprintf(stderr, "load: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static void readBodies(void) {
    FILE *file = fopen(options.bodies, "r");
    if (!file) die(options.bodies);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    while ((size = getline(&line, &capacity, file)) > 0 && requestKinds < bodiesCapacity) {
        if (line[size - 1] == '\n') size -= 1;
        char head[2048];
        int headSize = snprintf(
            head, sizeof head, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: %s\r\n%s%sContent-Length: %zd\r\n\r\n",
            options.path, options.port, options.type, options.header, *options.header ? "\r\n" : "", size);
        if (headSize >= (int)sizeof head) die("path and headers are too long");
        char *text = malloc((size_t)headSize + (size_t)size);
        if (!text) die("memory");
        memcpy(text, head, (size_t)headSize);
        memcpy(text + headSize, line, (size_t)size);
        requests[requestKinds].text = text;
        requests[requestKinds++].size = (size_t)headSize + (size_t)size;
    }
    free(line);
    fclose(file);
    errno = 0;
    if (requestKinds == 0) die("no bodies");
}

// ---- Connections

struct connection {
    int socket;
    bool busy, wantsOut;
    size_t request, sent;   // which request, and how much of it is out
    size_t got;             // bytes of the answer so far
    int64_t dueNs;          // its latency counts from here
    char *answer;
};
static struct connection connections[connectionsCapacity];
static int idle[connectionsCapacity], idleCount, epollHandle;
static uint64_t begun, completed, counted, accepted, refused, broken, reconnects;
static int64_t startNs, measureNs, endNs, lastNs;
static int lastRefusal;

static void watch(struct connection *connection, bool out, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = connection};
    if (epoll_ctl(epollHandle, operation, connection->socket, &event) != 0) die("epoll_ctl");
    connection->wantsOut = out;
}

static void open_(struct connection *connection) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)options.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    connection->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection->socket < 0) die("socket");
    if (connect(connection->socket, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
    int yes = 1;
    setsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(connection->socket, F_SETFL, O_NONBLOCK);
    watch(connection, false, EPOLL_CTL_ADD);
}

static void free_(struct connection *connection) {
    connection->busy = false;
    idle[idleCount++] = (int)(connection - connections);
}

/// The server closed or reset it: an unanswered request counts as broken.
static void reopen(struct connection *connection) {
    close(connection->socket);
    reconnects += 1;
    open_(connection);
    if (connection->busy) {
        broken += 1;
        free_(connection);
    }
}

static void write_(struct connection *connection) {
    while (connection->sent < requests[connection->request].size) {
        ssize_t count = send(
            connection->socket, requests[connection->request].text + connection->sent,
            requests[connection->request].size - connection->sent, MSG_NOSIGNAL);
        if (count > 0) {
            connection->sent += (size_t)count;
        } else if (errno == EAGAIN) {
            if (!connection->wantsOut) watch(connection, true, EPOLL_CTL_MOD);
            return;
        } else if (errno != EINTR) {
            reopen(connection);
            return;
        }
    }
    if (connection->wantsOut) watch(connection, false, EPOLL_CTL_MOD);
}

static void begin(int64_t dueNs) {
    struct connection *connection = &connections[idle[--idleCount]];
    connection->busy = true;
    connection->request = begun++ % requestKinds;
    connection->sent = connection->got = 0;
    connection->dueNs = dueNs;
    write_(connection);
}

/// Size of the whole answer once its head is there, else 0. Only answers with a Content-Length are understood.
static size_t answerSize(struct connection *connection) {
    char *head = connection->answer;
    head[connection->got] = 0;
    char *end = strstr(head, "\r\n\r\n");
    if (!end) return 0;
    for (char *line = strstr(head, "\r\n"); line && line < end; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, "content-length:", 15) == 0)
            return (size_t)(end + 4 - head) + strtoul(line + 17, NULL, 10);
    errno = 0;
    die("an answer without Content-Length");
    return 0;
}

static void finish(struct connection *connection, int64_t now) {
    int status = atoi(connection->answer + 9);
    completed += 1;
    if (status >= 200 && status < 300) accepted += 1;
    else refused += 1, lastRefusal = status;
    // At a fixed rate what counts is what was due in the time measured; otherwise what was answered in it.
    if (options.rate > 0 ? connection->dueNs >= measureNs : now >= measureNs && now <= endNs) {
        counted += status >= 200 && status < 300;
        record((now - connection->dueNs) / 1000);
    }
    free_(connection);
}

static void read_(struct connection *connection) {
    for (;;) {
        ssize_t count = recv(
            connection->socket, connection->answer + connection->got, answerCapacity - 1 - connection->got, 0);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN) return;
        if (count <= 0 || !connection->busy) {
            reopen(connection);
            return;
        }
        connection->got += (size_t)count;
        size_t size = answerSize(connection);
        errno = 0;
        if (size >= answerCapacity || connection->got >= answerCapacity - 1) die("an answer over 64 KiB");
        if (size > 0 && connection->got >= size) {
            finish(connection, nowNs());
            return;
        }
    }
}

// ---- The window

static uint64_t limit;  // messages that may have been sent in total

/// False at the end of standard input.
static bool readWindow(void) {
    static char text[4096];
    static size_t used;
    for (;;) {
        ssize_t count = read(STDIN_FILENO, text + used, sizeof text - 1 - used);
        if (count == 0) return false;
        if (count < 0) return errno == EAGAIN || errno == EINTR;
        used += (size_t)count;
        text[used] = 0;
        char *line = text, *end;
        while ((end = strchr(line, '\n'))) {
            limit = strtoull(line, NULL, 10);
            line = end + 1;
        }
        used = strlen(line);
        memmove(text, line, used);
    }
}

// ---- The run

static int64_t dueNs(uint64_t request) {
    return options.rate > 0 ? startNs + (int64_t)((double)request * 1e9 / options.rate) : 0;
}

static bool isOver(int64_t now) { return options.requests ? begun >= options.requests : now >= endNs; }

static void beginWhatIsDue(int64_t now) {
    while (idleCount > 0 && !isOver(now) && dueNs(begun) <= now) {
        if (options.window && (begun + 1) * (uint64_t)options.messages > limit) return;
        begin(options.rate > 0 ? dueNs(begun) : now);
    }
}

/// How long nothing is due, at most 50 ms.
static struct timespec pause_(int64_t now) {
    const int64_t longest = 50000000;
    int64_t wait = options.rate > 0 && idleCount > 0 ? dueNs(begun) - now : longest;
    return (struct timespec){.tv_nsec = wait < 0 ? 0 : wait < longest ? wait : longest};
}

static void run(void) {
    const int64_t patienceNs = INT64_C(15000000000);  // for the last answers
    struct epoll_event events[512];
    startNs = lastNs = nowNs();
    measureNs = startNs + (int64_t)(options.warmup * 1e9);
    endNs = options.requests && options.rate <= 0 ? INT64_MAX : measureNs + (int64_t)(options.seconds * 1e9);
    for (;;) {
        beginWhatIsDue(lastNs);
        if (isOver(lastNs) && (idleCount == options.connections || lastNs - patienceNs > endNs)) return;
        struct timespec wait = pause_(lastNs);
        int count = epoll_pwait2(epollHandle, events, 512, &wait, NULL);
        if (count < 0 && errno != EINTR) die("epoll_pwait2");
        for (int index = 0; index < count; index++) {
            struct connection *connection = events[index].data.ptr;
            if (!connection) {
                if (!readWindow()) endNs = nowNs(), epoll_ctl(epollHandle, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
                continue;
            }
            if (events[index].events & EPOLLOUT && connection->busy) write_(connection);
            if (events[index].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_(connection);
        }
        lastNs = nowNs();
    }
}

static void report(void) {
    int64_t untilNs = endNs < lastNs ? endNs : lastNs;
    double seconds = (double)(untilNs - measureNs) / 1e9;
    printf(
        "{\"seconds\":%.3f,\"perSecond\":%.1f,\"sent\":%lu,\"accepted\":%lu,\"refused\":%lu,\"lastRefusal\":%d,"
        "\"broken\":%lu,\"unanswered\":%d,\"measured\":%lu,"
        "\"p50Ms\":%.3f,\"p90Ms\":%.3f,\"p99Ms\":%.3f,\"p999Ms\":%.3f,\"maxMs\":%.3f}\n",
        seconds, seconds > 0 ? (double)counted / seconds : 0, begun, accepted, refused, lastRefusal, broken,
        options.connections - idleCount, recorded, percentileMs(50), percentileMs(90), percentileMs(99),
        percentileMs(99.9), (double)longestUs / 1000);
}

static void parse(int count, char **arguments) {
    for (int index = 1; index < count; index++) {
        const char *name = arguments[index];
        if (strcmp(name, "--window") == 0) {
            options.window = true;
            continue;
        }
        const char *value = index + 1 < count ? arguments[++index] : NULL;
        if (!value) fputs(usage, stderr), exit(64);
        if (strcmp(name, "--port") == 0) options.port = atoi(value);
        else if (strcmp(name, "--path") == 0) options.path = value;
        else if (strcmp(name, "--bodies") == 0) options.bodies = value;
        else if (strcmp(name, "--connections") == 0) options.connections = atoi(value);
        else if (strcmp(name, "--rate") == 0) options.rate = atof(value);
        else if (strcmp(name, "--messages") == 0) options.messages = atoi(value);
        else if (strcmp(name, "--seconds") == 0) options.seconds = atof(value);
        else if (strcmp(name, "--warmup") == 0) options.warmup = atof(value);
        else if (strcmp(name, "--requests") == 0) options.requests = strtoull(value, NULL, 10);
        else if (strcmp(name, "--type") == 0) options.type = value;
        else if (strcmp(name, "--header") == 0) options.header = value;
        else fputs(usage, stderr), exit(64);
    }
    bool sane = options.port > 0 && options.path && options.bodies && options.connections > 0
        && options.connections <= connectionsCapacity && options.messages > 0;
    if (!sane) fputs(usage, stderr), exit(64);
    if (options.rate > 0) options.requests = (uint64_t)(options.rate * (options.warmup + options.seconds));
}

int main(int count, char **arguments) {
    parse(count, arguments);
    readBodies();
    epollHandle = epoll_create1(EPOLL_CLOEXEC);
    if (epollHandle < 0) die("epoll_create1");
    for (int index = options.connections; index-- > 0;) {
        connections[index].answer = malloc(answerCapacity);
        if (!connections[index].answer) die("memory");
        open_(&connections[index]);
        idle[idleCount++] = index;
    }
    if (options.window) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
        fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
        if (epoll_ctl(epollHandle, EPOLL_CTL_ADD, STDIN_FILENO, &event) != 0) die("standard input");
    }
    run();
    report();
    return 0;
}
