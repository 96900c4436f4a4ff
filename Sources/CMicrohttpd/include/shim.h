#ifndef POSTERN_CMICROHTTPD_H
#define POSTERN_CMICROHTTPD_H

#include <microhttpd.h>

#endif
