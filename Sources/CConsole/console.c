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
static const uint8_t charts_js[] = {
#embed "files/charts.js"
};
static const uint8_t console_css[] = {
#embed "files/console.css"
};
static const uint8_t core_js[] = {
#embed "files/core.js"
};
static const uint8_t dom_js[] = {
#embed "files/dom.js"
};
static const uint8_t icon_svg[] = {
#embed "files/icon.svg"
};
static const uint8_t main_js[] = {
#embed "files/main.js"
};
static const uint8_t messages_js[] = {
#embed "files/messages.js"
};
static const uint8_t parts_js[] = {
#embed "files/parts.js"
};
static const uint8_t views_js[] = {
#embed "files/views.js"
};

#define ROW(path, type, bytes) {path, type, bytes, sizeof bytes}

static const struct postern_console_file files[] = {
    ROW("", HTML, index_html),
    ROW("charts.js", JS, charts_js),
    ROW("console.css", CSS, console_css),
    ROW("core.js", JS, core_js),
    ROW("dom.js", JS, dom_js),
    ROW("icon.svg", SVG, icon_svg),
    ROW("main.js", JS, main_js),
    ROW("messages.js", JS, messages_js),
    ROW("parts.js", JS, parts_js),
    ROW("views.js", JS, views_js),
};

const struct postern_console_file *postern_console_files(size_t *count) {
    *count = sizeof files / sizeof files[0];
    return files;
}
