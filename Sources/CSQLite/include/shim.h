#ifndef POSTERN_CSQLITE_H
#define POSTERN_CSQLITE_H

#include <sqlite3.h>

#include "blocks.h"

/// `sqlite3_config` is variadic. SQLite no longer counts the memory that it uses, for which each allocation and each release
/// would take a lock that all connections share. Has no effect once a connection was opened.
static inline void postern_sqlite_count_no_memory(void) { sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); }

/// `sqlite3_db_config` is variadic. A name in double quotes that SQLite does not know is then an error, not a text.
static inline void postern_sqlite_refuse_quoted_text(sqlite3 *connection) {
    sqlite3_db_config(connection, SQLITE_DBCONFIG_DQS_DDL, 0, (void *)0);
    sqlite3_db_config(connection, SQLITE_DBCONFIG_DQS_DML, 0, (void *)0);
}

/// Swift imports no macro with more than one operator.
static const int POSTERN_IOERR_FSYNC = SQLITE_IOERR_FSYNC;
static const int POSTERN_IOERR_DIR_FSYNC = SQLITE_IOERR_DIR_FSYNC;
static const int POSTERN_IOERR_SHMSIZE = SQLITE_IOERR_SHMSIZE;
static const int POSTERN_IOERR_SHMMAP = SQLITE_IOERR_SHMMAP;

#endif
