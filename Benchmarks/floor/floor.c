// The floor: what libmicrohttpd alone does on this machine.
//
// Reads any request body, throws it away and answers 202 with a constant body of the size of the gateway's own answer.
// Same library, same event loop and same number of threads as the gateway, but no parsing, no store and no delivery:
// the gateway's figures are ratios of this one.
//
// usage: floor PORT THREADS ANSWER_BYTES [CERTIFICATE KEY]     with PEM files: over TLS, with the gateway's versions and ciphers
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct MHD_Response *answer;

static enum MHD_Result handle(
    void *context, struct MHD_Connection *connection, const char *url, const char *method, const char *version,
    const char *part, size_t *partSize, void **request
) {
    static char begun;  // Only its address is used: "the headers of this request were seen".
    (void)context, (void)url, (void)method, (void)version, (void)part;
    if (*request == NULL) {
        *request = &begun;
        return MHD_YES;
    }
    if (*partSize > 0) {
        *partSize = 0;
        return MHD_YES;
    }
    return MHD_queue_response(connection, MHD_HTTP_ACCEPTED, answer);
}

/// The text of a file, which libmicrohttpd reads when it starts.
static char *textOf(const char *path) {
    static char texts[2][65536];
    static int index;
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        exit(66);
    }
    char *text = texts[index++];
    text[fread(text, 1, sizeof texts[0] - 1, file)] = 0;
    fclose(file);
    return text;
}

int main(int count, char **arguments) {
    if (count != 4 && count != 6) {
        fprintf(stderr, "usage: floor PORT THREADS ANSWER_BYTES [CERTIFICATE KEY]\n");
        return 64;
    }
    int port = atoi(arguments[1]), threads = atoi(arguments[2]), size = atoi(arguments[3]);
    char *body = malloc((size_t)size + 1);
    if (!body) return 71;
    memset(body, 'x', (size_t)size);
    answer = MHD_create_response_from_buffer((size_t)size, body, MHD_RESPMEM_MUST_FREE);
    MHD_add_response_header(answer, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");

    // Before the daemon's threads start, so that they inherit the mask and `sigwait` gets the signal.
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, NULL);

    struct MHD_OptionItem tls[] = {{MHD_OPTION_END, 0, NULL}, {0}, {0}, {0}};
    if (count == 6) {
        tls[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, textOf(arguments[4])};
        tls[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, textOf(arguments[5])};
        tls[2] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0, "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"};
        tls[3] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    }
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ERROR_LOG | (count == 6 ? MHD_USE_TLS : 0), (uint16_t)port, NULL, NULL,
        handle, NULL, MHD_OPTION_THREAD_POOL_SIZE, threads > 1 ? (unsigned int)threads : 0,
        MHD_OPTION_CONNECTION_LIMIT, 20000u, MHD_OPTION_LISTEN_BACKLOG_SIZE, 4096u, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    if (!daemon) {
        fprintf(stderr, "floor: cannot listen on port %d\n", port);
        return 71;
    }
    int signal;
    sigwait(&stop, &signal);
    MHD_stop_daemon(daemon);
    MHD_destroy_response(answer);
    return 0;
}
