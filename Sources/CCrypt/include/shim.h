#ifndef POSTERN_CCRYPT_H
#define POSTERN_CCRYPT_H

// libxcrypt: the C library's own crypt has no bcrypt.
#include <crypt.h>

#endif
