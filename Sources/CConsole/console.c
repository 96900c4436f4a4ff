#include "console.h"

// See document.c of COpenAPI for `#embed`.
#pragma clang diagnostic ignored "-Wc23-extensions"

#define HTML "text/html; charset=utf-8"
#define CSS "text/css; charset=utf-8"
#define JS "text/javascript; charset=utf-8"
#define SVG "image/svg+xml"

static const uint8_t index_html[] = {
#embed "files/index.html"
};
static const uint8_t access_js[] = {
#embed "files/access.js"
};
static const uint8_t actions_js[] = {
#embed "files/actions.js"
};
static const uint8_t api_js[] = {
#embed "files/api.js"
};
static const uint8_t charts_js[] = {
#embed "files/charts.js"
};
static const uint8_t console_css[] = {
#embed "files/console.css"
};
static const uint8_t dialogs_js[] = {
#embed "files/dialogs.js"
};
static const uint8_t dom_js[] = {
#embed "files/dom.js"
};
static const uint8_t events_js[] = {
#embed "files/events.js"
};
static const uint8_t failures_js[] = {
#embed "files/failures.js"
};
static const uint8_t files_js[] = {
#embed "files/files.js"
};
static const uint8_t finder_js[] = {
#embed "files/finder.js"
};
static const uint8_t format_js[] = {
#embed "files/format.js"
};
static const uint8_t gateway_js[] = {
#embed "files/gateway.js"
};
static const uint8_t icon_svg[] = {
#embed "files/icon.svg"
};
static const uint8_t live_js[] = {
#embed "files/live.js"
};
static const uint8_t main_js[] = {
#embed "files/main.js"
};
static const uint8_t message_js[] = {
#embed "files/message.js"
};
static const uint8_t messages_js[] = {
#embed "files/messages.js"
};
static const uint8_t parts_js[] = {
#embed "files/parts.js"
};
static const uint8_t payload_js[] = {
#embed "files/payload.js"
};
static const uint8_t resend_js[] = {
#embed "files/resend.js"
};
static const uint8_t router_js[] = {
#embed "files/router.js"
};
static const uint8_t settings_js[] = {
#embed "files/settings.js"
};
static const uint8_t upstreams_js[] = {
#embed "files/upstreams.js"
};
static const uint8_t words_js[] = {
#embed "files/words.js"
};

#define ROW(path, type, bytes) {path, type, bytes, sizeof bytes}

static const struct postern_console_file files[] = {
    ROW("", HTML, index_html),
    ROW("access.js", JS, access_js),
    ROW("actions.js", JS, actions_js),
    ROW("api.js", JS, api_js),
    ROW("charts.js", JS, charts_js),
    ROW("console.css", CSS, console_css),
    ROW("dialogs.js", JS, dialogs_js),
    ROW("dom.js", JS, dom_js),
    ROW("events.js", JS, events_js),
    ROW("failures.js", JS, failures_js),
    ROW("files.js", JS, files_js),
    ROW("finder.js", JS, finder_js),
    ROW("format.js", JS, format_js),
    ROW("gateway.js", JS, gateway_js),
    ROW("icon.svg", SVG, icon_svg),
    ROW("live.js", JS, live_js),
    ROW("main.js", JS, main_js),
    ROW("message.js", JS, message_js),
    ROW("messages.js", JS, messages_js),
    ROW("parts.js", JS, parts_js),
    ROW("payload.js", JS, payload_js),
    ROW("resend.js", JS, resend_js),
    ROW("router.js", JS, router_js),
    ROW("settings.js", JS, settings_js),
    ROW("upstreams.js", JS, upstreams_js),
    ROW("words.js", JS, words_js),
};

const struct postern_console_file *postern_console_files(size_t *count) {
    *count = sizeof files / sizeof files[0];
    return files;
}
