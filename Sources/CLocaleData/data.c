#include <stdint.h>

/// Takes the place of ICU's locale data in a program that is linked statically.
///
/// Foundation comes with 34 MB of ICU's data about languages, calendars, and time zones. A linker takes the
/// member of an archive that defines a symbol only if nothing else does, so this definition keeps them out. It is a package of ICU's
/// common data (`udata.h`, `UDataInfo`) with an empty table of contents, like the one that ICU's own build uses as `stubdata`: what looks
/// up an entry gets an error or the root locale's defaults. The gateway formats no dates, numbers, or texts for a language.
///
/// The symbol has the version of ICU in its name. A toolchain with another version links its data as before, and the program is larger.
/// The symbol is hidden, so it changes nothing in a program that loads Foundation as a shared library.
__attribute__((visibility("hidden"), used)) const struct {
    uint16_t headerSize;
    uint8_t magic[2];
    struct {
        uint16_t size;
        uint16_t reserved;
        uint8_t isBigEndian;
        uint8_t charset;
        uint8_t sizeofUChar;
        uint8_t reserved2;
        uint8_t dataFormat[4];
        uint8_t formatVersion[4];
        uint8_t dataVersion[4];
    } info;
    uint8_t padding[8];
    uint32_t count;
    uint32_t unused[3];
} icudt76_dat __attribute__((aligned(16))) = {
    .headerSize = 32,
    .magic = {0xda, 0x27},
    .info = {
        .size = 20,
        .isBigEndian = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__,
        .sizeofUChar = 2,
        .dataFormat = {'C', 'm', 'n', 'D'},
        .formatVersion = {1},
    },
};
