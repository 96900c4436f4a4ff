#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>

// libmicrohttpd offers no way to look at the bytes of a request before it parses them. It is linked dynamically, and the
// dynamic linker looks for `recv`, `gnutls_record_recv`, and `epoll_wait` in the executable first: so these definitions are
// what the library calls. On a thread that never called `postern_receive_by`, they do what the originals do.
// `postern_functions_are_ours` checks that before a server starts; if it were wrong, no request would be served
// (`Connection.advance`).

static __thread postern_receiver receiver;
static __thread void *receiver_context;
/// What the last failed read of this thread said: an errno, or a code of GnuTLS.
static __thread int failure;

void postern_receive_by(postern_receiver callback, void *context) {
    receiver = callback;
    receiver_context = context;
}

static ssize_t plain_recv(int socket, void *buffer, size_t size, int flags) {
    // What `recv` is defined as (POSIX.1-2017).
    return recvfrom(socket, buffer, size, flags, NULL, NULL);
}

static ssize_t (*tls_recv)(gnutls_session_t session, void *buffer, size_t size);

__attribute__((constructor)) static void find_tls_recv(void) {
    *(void **)&tls_recv = dlsym(RTLD_NEXT, "gnutls_record_recv");
}

bool postern_functions_are_ours(void) {
    return tls_recv && dlsym(RTLD_DEFAULT, "recv") == (void *)recv
        && dlsym(RTLD_DEFAULT, "gnutls_record_recv") == (void *)gnutls_record_recv
        && dlsym(RTLD_DEFAULT, "epoll_wait") == (void *)epoll_wait;
}

ssize_t postern_socket_read(int socket, void *session, void *buffer, size_t size) {
    if (session) {
        ssize_t count = tls_recv(session, buffer, size);
        if (count >= 0) return count;
        failure = (int)count;
        if (count == GNUTLS_E_AGAIN) return POSTERN_READ_AGAIN;
        return count == GNUTLS_E_INTERRUPTED ? POSTERN_READ_INTERRUPTED : POSTERN_READ_FAILED;
    }
    ssize_t count = plain_recv(socket, buffer, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) return count;
    failure = errno;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return POSTERN_READ_AGAIN;
    return errno == EINTR ? POSTERN_READ_INTERRUPTED : POSTERN_READ_FAILED;
}

ssize_t postern_socket_write(int socket, void *session, const void *bytes, size_t size) {
    if (session) return gnutls_record_send(session, bytes, size);
    return send(socket, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// libmicrohttpd reads plain sockets without flags (`MHD_recv_`), and GnuTLS its records; our own code peeks with flags.
__attribute__((visibility("default"), used)) ssize_t recv(int socket, void *buffer, size_t size, int flags) {
    if (!receiver || flags) return plain_recv(socket, buffer, size, flags);
    ssize_t count = receiver(receiver_context, socket, NULL, buffer, size);
    if (count >= 0) return count;
    if (count == POSTERN_READ_UNCHANGED) return plain_recv(socket, buffer, size, flags);
    errno = count == POSTERN_READ_AGAIN ? EAGAIN : count == POSTERN_READ_INTERRUPTED ? EINTR : failure;
    return -1;
}

__attribute__((visibility("default"), used)) ssize_t gnutls_record_recv(
    gnutls_session_t session, void *buffer, size_t size
) {
    if (!receiver) return tls_recv(session, buffer, size);
    int socket = (int)(intptr_t)gnutls_transport_get_ptr(session);
    ssize_t count = receiver(receiver_context, socket, session, buffer, size);
    if (count >= 0) return count;
    return count == POSTERN_READ_AGAIN ? GNUTLS_E_AGAIN
        : count == POSTERN_READ_INTERRUPTED ? GNUTLS_E_INTERRUPTED : failure;
}

/// Does not wait after it has returned as many events as were asked for: libmicrohttpd then calls it again, with the same
/// time limit, before it serves any of those sockets (`MHD_epoll`).
__attribute__((visibility("default"), used)) int epoll_wait(
    int epoll, struct epoll_event *events, int most, int milliseconds
) {
    static __thread int full_epoll = -1;
    bool was_full = receiver && full_epoll == epoll;
    // What `epoll_wait` is defined as.
    int count = epoll_pwait(epoll, events, most, was_full ? 0 : milliseconds, NULL);
    full_epoll = count == most ? epoll : -1;
    return count;
}
