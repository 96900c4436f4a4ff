#ifndef POSTERN_CCURL_H
#define POSTERN_CCURL_H

#include <curl/curl.h>

/// `curl_easy_setopt` is variadic, which Swift cannot call: one function per type of value.
static inline CURLcode postern_curl_set_long(CURL *handle, CURLoption option, long value) {
    return curl_easy_setopt(handle, option, value);
}
static inline CURLcode postern_curl_set_offset(CURL *handle, CURLoption option, curl_off_t value) {
    return curl_easy_setopt(handle, option, value);
}
static inline CURLcode postern_curl_set_string(CURL *handle, CURLoption option, const char *value) {
    return curl_easy_setopt(handle, option, value);
}
static inline CURLcode postern_curl_set_pointer(CURL *handle, CURLoption option, const void *value) {
    return curl_easy_setopt(handle, option, value);
}
static inline CURLcode postern_curl_set_list(CURL *handle, CURLoption option, struct curl_slist *value) {
    return curl_easy_setopt(handle, option, value);
}
static inline CURLcode postern_curl_set_callback(
    CURL *handle, CURLoption option, size_t (*value)(char *, size_t, size_t, void *)
) {
    return curl_easy_setopt(handle, option, value);
}
static inline CURLcode postern_curl_set_prerequest(
    CURL *handle, int (*value)(void *, char *, char *, int, int), void *context
) {
    CURLcode code = curl_easy_setopt(handle, CURLOPT_PREREQFUNCTION, value);
    return code != CURLE_OK ? code : curl_easy_setopt(handle, CURLOPT_PREREQDATA, context);
}

/// `curl_share_setopt` is variadic.
static inline CURLSHcode postern_curl_share(CURLSH *share, curl_lock_data data) {
    return curl_share_setopt(share, CURLSHOPT_SHARE, data);
}

/// `curl_easy_getinfo` is variadic.
static inline CURLcode postern_curl_get_long(CURL *handle, CURLINFO info, long *value) {
    return curl_easy_getinfo(handle, info, value);
}
static inline CURLcode postern_curl_get_offset(CURL *handle, CURLINFO info, curl_off_t *value) {
    return curl_easy_getinfo(handle, info, value);
}

/// `curl_multi_setopt` is variadic.
static inline CURLMcode postern_curl_multi_set_long(CURLM *multi, CURLMoption option, long value) {
    return curl_multi_setopt(multi, option, value);
}

/// The result sits in a union, which Swift imports without the member's name.
static inline CURLcode postern_curl_message_result(const CURLMsg *message) { return message->data.result; }

#endif
