// How much longer a call takes through the gateway than straight to the upstream, both by libcurl.
//
// usage: latency COUNT SPACING_US DIRECT_URL DIRECT_TYPE DIRECT_BODY THROUGH_URL THROUGH_TYPE THROUGH_BODY [HEADER]
//
// The two take turns, COUNT times, each on a kept-alive connection of its own, so that whatever else the machine does
// strikes both alike. Between two calls it sleeps for SPACING_US: as calls come, and long enough for all threads to
// sleep. What counts is the time of `curl_easy_perform`. Every answer must be a 200 with `"status":0` in it.
// Prints one JSON object.
#include <curl/curl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { answerCapacity = 65536 };

typedef struct {
    const char *url, *type, *body;
    CURL *handle;
    struct curl_slist *headers;
    double *milliseconds;
    char answer[answerCapacity];
    size_t length;
} Way;

static void fail(const Way *way, const char *why) {
    fprintf(stderr, "latency: %s: %s: %.*s\n", way->url, why, (int)way->length, way->answer);
    exit(1);
}

static size_t keep(char *bytes, size_t size, size_t count, void *context) {
    Way *way = context;
    if (way->length + size * count >= answerCapacity) return 0;
    memcpy(way->answer + way->length, bytes, size * count);
    way->length += size * count;
    return size * count;
}

static void prepare(Way *way, char **arguments, int count) {
    way->url = arguments[0];
    way->type = arguments[1];
    way->body = arguments[2];
    way->milliseconds = calloc((size_t)count, sizeof(double));
    way->handle = curl_easy_init();
    if (!way->milliseconds || !way->handle) fail(way, "no memory");
    char line[256];
    snprintf(line, sizeof line, "Content-Type: %s", way->type);
    way->headers = curl_slist_append(NULL, line);
    curl_easy_setopt(way->handle, CURLOPT_URL, way->url);
    curl_easy_setopt(way->handle, CURLOPT_HTTPHEADER, way->headers);
    curl_easy_setopt(way->handle, CURLOPT_POSTFIELDS, way->body);
    curl_easy_setopt(way->handle, CURLOPT_POSTFIELDSIZE, (long)strlen(way->body));
    curl_easy_setopt(way->handle, CURLOPT_WRITEFUNCTION, keep);
    curl_easy_setopt(way->handle, CURLOPT_WRITEDATA, way);
    curl_easy_setopt(way->handle, CURLOPT_TIMEOUT, 10L);
    curl_easy_setopt(way->handle, CURLOPT_NOPROXY, "*");
}

static double nowMs(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static double call(Way *way) {
    way->length = 0;
    double start = nowMs();
    CURLcode code = curl_easy_perform(way->handle);
    double took = nowMs() - start;
    if (code) fail(way, curl_easy_strerror(code));
    long status = 0;
    curl_easy_getinfo(way->handle, CURLINFO_RESPONSE_CODE, &status);
    way->answer[way->length] = 0;
    if (status != 200 || !strstr(way->answer, "\"status\":0,")) fail(way, "not the answer that was to come");
    return took;
}

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void finish(Way *way) {
    curl_slist_free_all(way->headers);
    curl_easy_cleanup(way->handle);
    free(way->milliseconds);
}

int main(int argc, char **argv) {
    if (argc != 9 && argc != 10) {
        fprintf(stderr, "usage: latency COUNT SPACING_US (URL TYPE BODY) twice: direct, then through the gateway [HEADER]\n");
        return 64;
    }
    int count = atoi(argv[1]);
    struct timespec spacing = {.tv_nsec = atol(argv[2]) * 1000};
    if (count < 10 || spacing.tv_nsec >= 1000000000) return 64;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    static Way direct, through;
    prepare(&direct, argv + 3, count);
    prepare(&through, argv + 6, count);
    // The list has an element already, so it stays where libcurl was told that it is.
    if (argc == 10) curl_slist_append(through.headers, argv[9]);
    const int warmup = 50;
    for (int round = -warmup; round < count; round++) {
        for (int turn = 0; turn < 2; turn++) {
            Way *way = (round + turn) % 2 ? &through : &direct;
            nanosleep(&spacing, NULL);
            double took = call(way);
            if (round >= 0) way->milliseconds[round] = took;
        }
    }
    qsort(direct.milliseconds, (size_t)count, sizeof(double), ascending);
    qsort(through.milliseconds, (size_t)count, sizeof(double), ascending);
    int middle = count / 2, rare = count * 99 / 100;
    printf("{\"count\":%d,\"directP50Ms\":%.4f,\"throughP50Ms\":%.4f,\"directP99Ms\":%.4f,\"throughP99Ms\":%.4f}\n", count,
        direct.milliseconds[middle], through.milliseconds[middle], direct.milliseconds[rare],
        through.milliseconds[rare]);
    finish(&direct);
    finish(&through);
    curl_global_cleanup();
    return 0;
}
