#ifndef POSTERN_JSON_H
#define POSTERN_JSON_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
int postern_json_placeholder(void);
#ifdef __cplusplus
}
#endif
#endif
