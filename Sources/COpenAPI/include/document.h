#ifndef POSTERN_OPENAPI_DOCUMENT_H
#define POSTERN_OPENAPI_DOCUMENT_H

#include <stddef.h>
#include <stdint.h>

struct postern_document {
    const uint8_t *bytes;
    size_t count;
};

/// `openapi/openapi.yaml` as it was when the gateway was built. The bytes live as long as the process.
struct postern_document postern_openapi_document(void);

#endif
