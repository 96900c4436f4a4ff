#ifndef POSTERN_CSQLITE_H
#define POSTERN_CSQLITE_H

/// `sqlite3_config` is variadic. SQLite no longer counts the memory that it uses, for which each allocation and each release
/// would take a lock that all connections share. Has no effect once a connection was opened.
void postern_sqlite_count_no_memory(void);

#endif
