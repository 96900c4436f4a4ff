#ifndef POSTERN_CMICROHTTPD_H
#define POSTERN_CMICROHTTPD_H

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/types.h>

/// What `postern_mhd_start` passes on; every callback receives `context`, which must outlive the daemon.
struct postern_mhd_settings {
    unsigned int flags;
    unsigned int max_connections;
    unsigned int timeout_seconds;
    size_t connection_memory;
    /// PEM texts, read during the start only; NULL without TLS.
    const char *certificate;
    const char *key;
    const char *client_ca;
    void *context;
    MHD_LogCallback log;
    MHD_AccessHandlerCallback request;
    MHD_RequestCompletedCallback completed;
    MHD_NotifyConnectionCallback connection;
};

/// `MHD_start_daemon` is variadic.
static inline struct MHD_Daemon *postern_mhd_start(const struct postern_mhd_settings *s) {
    const struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)s->certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)s->key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {s->client_ca ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0, (void *)s->client_ca},
        {MHD_OPTION_END, 0, NULL},
    };
    const struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(
        s->flags, 0, NULL, NULL, s->request, s->context,
        MHD_OPTION_EXTERNAL_LOGGER, s->log, s->context,
        MHD_OPTION_NOTIFY_COMPLETED, s->completed, s->context,
        MHD_OPTION_NOTIFY_CONNECTION, s->connection, s->context,
        MHD_OPTION_CONNECTION_LIMIT, s->max_connections,
        MHD_OPTION_CONNECTION_TIMEOUT, s->timeout_seconds,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, s->connection_memory,
        MHD_OPTION_ARRAY, s->certificate ? tls : plain,
        MHD_OPTION_END);
}

/// `MHD_get_daemon_info` is variadic. From now on a write to `bell`, an eventfd, ends `MHD_run_wait`.
///
/// libmicrohttpd passes over events that carry no pointer (`MHD_epoll` of 0.9.75, which Debian pins); edge-triggered,
/// so that the bell does not have to be read.
static inline void postern_mhd_wake_by(struct MHD_Daemon *daemon, int bell) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    epoll_ctl(info->epoll_fd, EPOLL_CTL_ADD, bell, &event);
}

/// `MHD_get_connection_info` is variadic: what the connection notification stored for this socket.
static inline void *postern_mhd_socket_context(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}
static inline int postern_mhd_socket(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}
static inline const struct sockaddr *postern_mhd_address(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info ? info->client_addr : NULL;
}
/// `MHD_set_connection_option` is variadic. Restarts the time limit after which libmicrohttpd closes the connection.
static inline void postern_mhd_restart_timeout(struct MHD_Connection *connection, unsigned int seconds) {
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}
static inline gnutls_session_t postern_mhd_tls_session(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info ? (gnutls_session_t)info->tls_session : NULL;
}

/// `gnutls_free` is a variable that holds a function, which Swift takes for shared state.
static inline void postern_gnutls_free(void *memory) { gnutls_free(memory); }

/// Verifies the client's certificate: its authority, its term, and that it is meant for clients, which Swift cannot say
/// because the purpose is a pointer to constant bytes in a structure of mutable ones. `status` is 0 if it is good.
static inline int postern_verify_client(gnutls_session_t session, unsigned int *status) {
    gnutls_typed_vdata_st purpose = {GNUTLS_DT_KEY_PURPOSE_OID, (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT, 0};
    return gnutls_certificate_verify_peers(session, &purpose, 1, status);
}

/// `MHD_CONTENT_READER_END_OF_STREAM` is a cast, which Swift does not import.
enum { POSTERN_STREAM_END = -1 };
_Static_assert(POSTERN_STREAM_END == MHD_CONTENT_READER_END_OF_STREAM, "the result of a content reader at its end");
/// `MHD_set_response_options` is variadic. The response is ended by the end of its connection.
static inline void postern_mhd_do_not_chunk(struct MHD_Response *response) {
    MHD_set_response_options(response, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
}
/// `MHD_SIZE_UNKNOWN` is a macro that Swift does not import.
static const uint64_t postern_mhd_size_unknown = MHD_SIZE_UNKNOWN;

// MARK: Reading in libmicrohttpd's place (receive.c)

enum {
    POSTERN_READ_AGAIN = -1,
    /// Nothing for now, but more may be there: libmicrohttpd asks again without waiting for the socket.
    POSTERN_READ_INTERRUPTED = -2,
    POSTERN_READ_FAILED = -3,
    /// The bytes are not those of a request, but records of TLS: the library gets them as they are.
    POSTERN_READ_UNCHANGED = -4,
};

/// Called instead of reading `socket`, through TLS if `session` is not NULL: fills `buffer` and returns how many bytes
/// libmicrohttpd gets to see, 0 at the end of the stream, or one of `POSTERN_READ_…`. After a failure libmicrohttpd sees
/// that of the last `postern_socket_read`.
typedef ssize_t (*postern_receiver)(void *context, int socket, void *session, void *buffer, size_t size);

/// From now on, whatever libmicrohttpd reads on the calling thread comes from `callback`.
void postern_receive_by(postern_receiver callback, void *context);
/// The version of libmicrohttpd whose internals are relied on: what it reads sockets and waits by, and which events it passes over.
#define POSTERN_MHD_VERSION "0.9.75"
_Static_assert(MHD_VERSION >> 8 == 0x000975, "check receive.c and postern_mhd_wake_by against this libmicrohttpd");
/// Whether the dynamic linker gives libmicrohttpd our functions instead of those it was built with.
bool postern_functions_are_ours(void);
/// Reads what the client sent, through TLS if `session` is not NULL.
ssize_t postern_socket_read(int socket, void *session, void *buffer, size_t size);
/// Writes without waiting; returns how many bytes were taken, or a negative number.
ssize_t postern_socket_write(int socket, void *session, const void *bytes, size_t size);

#endif
