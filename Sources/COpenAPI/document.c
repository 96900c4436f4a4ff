#include "document.h"

// The compiler accepts `#embed` of C23 in every version of the language. It lists the file among the dependencies of
// this one, so a change of the document is a reason to build.
#pragma clang diagnostic ignored "-Wc23-extensions"

static const uint8_t document[] = {
#embed "../../openapi/openapi.yaml"
};

struct postern_document postern_openapi_document(void) {
    return (struct postern_document){document, sizeof document};
}
