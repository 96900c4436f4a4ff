// Many clients of `GET /v1/stream` that cost as little as they can: what is read is counted and forgotten.
//
// usage: listen PORT COUNT [HEADER]
//
// Opens COUNT streams on loopback, and prints `ready` once all responses have begun. Then it reads whatever comes until
// its standard input ends, and prints one JSON object: how many streams have ended early, bytes, events of all listeners
// and of the one with the fewest, and the processor time of this process, all since `ready`. One thread, epoll.
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct {
    int socket;
    bool hasBegun;
    char last;
    uint64_t events;
} Listener;

static uint64_t bytes, ended;
static size_t begun;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double cpuSeconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
        + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static int request(int port, const char *header) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("listen: connect");
    char text[1024];
    int length = snprintf(
        text, sizeof text, "GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n%s%s\r\n", header, *header ? "\r\n" : "");
    if (length >= (int)sizeof text || send(fd, text, (size_t)length, MSG_NOSIGNAL) != length) fail("listen: send");
    return fd;
}

/// An event ends with an empty line. The gateway sends whole lines in a chunk, so the marks of chunks look different.
static void count(Listener *listener, const char *text, size_t length) {
    const char *end = text + length;
    for (const char *line = text; (line = memchr(line, '\n', (size_t)(end - line))); line++) {
        if ((line > text ? line[-1] : listener->last) == '\n') listener->events++;
    }
    listener->last = end[-1];
}

static void readFrom(Listener *listener) {
    static char buffer[1 << 18];
    ssize_t length = recv(listener->socket, buffer, sizeof buffer, MSG_DONTWAIT);
    if (length < 0) return;
    if (length == 0) {
        ended++;
        close(listener->socket);
        return;
    }
    if (!listener->hasBegun) {
        if (length < 12 || memcmp(buffer, "HTTP/1.1 200", 12)) {
            fprintf(stderr, "listen: %.*s\n", (int)length, buffer);
            exit(1);
        }
        listener->hasBegun = true;
        begun++;
    }
    bytes += (uint64_t)length;
    count(listener, buffer, (size_t)length);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: listen PORT COUNT [HEADER]\n");
        return 64;
    }
    size_t total = strtoul(argv[2], NULL, 10);
    Listener *listeners = calloc(total, sizeof *listeners);
    int epoll = epoll_create1(0);
    if (!listeners || epoll < 0) fail("listen");
    struct epoll_event input = {.events = EPOLLIN};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &input)) fail("listen: standard input has to be a pipe");
    for (size_t index = 0; index < total; index++) {
        listeners[index].socket = request(atoi(argv[1]), argc > 3 ? argv[3] : "");
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &listeners[index]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, listeners[index].socket, &event)) fail("listen: epoll_ctl");
    }
    bool isReady = false;
    double cpu = 0;
    while (true) {
        struct epoll_event events[256];
        int count = epoll_wait(epoll, events, 256, -1);
        for (int index = 0; index < count; index++) {
            if (events[index].data.ptr) {
                readFrom(events[index].data.ptr);
                continue;
            }
            uint64_t all = 0, fewest = UINT64_MAX;
            for (size_t number = 0; number < total; number++) {
                all += listeners[number].events;
                if (listeners[number].events < fewest) fewest = listeners[number].events;
            }
            printf(
                "{\"listeners\":%zu,\"ended\":%lu,\"bytes\":%lu,\"events\":%lu,\"fewest\":%lu,\"cpuSeconds\":%.3f}\n",
                total, ended, bytes, all, fewest, cpuSeconds() - cpu);
            return 0;
        }
        if (isReady || begun < total) continue;
        isReady = true;
        bytes = 0;
        for (size_t number = 0; number < total; number++) listeners[number].events = 0;
        cpu = cpuSeconds();
        printf("ready\n");
        fflush(stdout);
    }
}
