#ifndef POSTERN_CPOSTGRES_H
#define POSTERN_CPOSTGRES_H

#include <postgresql/libpq-fe.h>

/// Swift imports no macro that is a character.
static const int POSTERN_PG_SEVERITY = PG_DIAG_SEVERITY_NONLOCALIZED;
static const int POSTERN_PG_STATE = PG_DIAG_SQLSTATE;
static const int POSTERN_PG_MESSAGE = PG_DIAG_MESSAGE_PRIMARY;
static const int POSTERN_PG_TABLE = PG_DIAG_TABLE_NAME;
static const int POSTERN_PG_CONSTRAINT = PG_DIAG_CONSTRAINT_NAME;

#endif
