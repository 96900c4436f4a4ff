#include "blocks.h"

#include <string.h>

// MARK: Heads

static uint8_t *put(uint8_t *at, uint64_t value) {
    for (; value >= 0x80; value >>= 7) *at++ = (uint8_t)value | 0x80;
    *at++ = (uint8_t)value;
    return at;
}

/// Returns NULL if the number does not end before `end`.
static inline const uint8_t *get(const uint8_t *at, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
        uint8_t byte = *at++;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return at;
    }
    return NULL;
}

/// Small numbers for small differences of either sign.
static uint64_t fold(int64_t number) { return (uint64_t)number << 1 ^ (uint64_t)(number >> 63); }
static int64_t unfold(uint64_t number) { return (int64_t)(number >> 1 ^ -(number & 1)); }

size_t postern_put_head(uint8_t *start, const postern_head *former, const postern_head *head) {
    // The lowest byte of an id is the upstream.
    uint8_t *at = put(start, (uint64_t)(head->id - former->id) >> 8);
    at = put(at, (uint64_t)head->kind);
    at = put(at, (uint64_t)(head->lane ^ former->lane));
    at = put(at, fold(head->acceptedAtMs - former->acceptedAtMs));
    at = put(at, (uint64_t)head->size);
    at = put(at, (uint64_t)(head->keySize | head->tried << 8));
    uint32_t checksum = (uint32_t)head->checksum;
    memcpy(at, &checksum, sizeof checksum);
    at += sizeof checksum;
    if (head->keySize > 0) memcpy(at, head->key, (size_t)head->keySize);
    return (size_t)(at + head->keySize - start);
}

const uint8_t *postern_next_head(postern_head *head, const uint8_t *at, const uint8_t *end) {
    uint64_t id, kind, lane, accepted, size, key;
    uint32_t checksum;
    if (!(at = get(at, end, &id)) || !(at = get(at, end, &kind)) || !(at = get(at, end, &lane))) return NULL;
    if (!(at = get(at, end, &accepted)) || !(at = get(at, end, &size)) || !(at = get(at, end, &key))) return NULL;
    head->tried = (int64_t)(key >> 8);
    key &= 0xFF;
    if (size > INT32_MAX || head->tried >= 64 || (size_t)(end - at) < sizeof checksum + key) return NULL;
    memcpy(&checksum, at, sizeof checksum);
    at += sizeof checksum;
    head->id += (int64_t)(id << 8);
    head->kind = (int64_t)kind;
    head->lane ^= (int64_t)lane;
    head->acceptedAtMs = (int64_t)((uint64_t)head->acceptedAtMs + (uint64_t)unfold(accepted));
    head->offset += head->size;
    head->size = (int64_t)size;
    head->checksum = checksum;
    head->key = key > 0 ? (const char *)at : NULL;
    head->keySize = (int64_t)key;
    return at + key;
}

// MARK: The functions

enum { ID, KIND, LANE, ACCEPTED, KEY, CHECKSUM, SIZE, PAYLOAD, SETTLED, RESULT, TRIED, NUMBER };
static const char columns[] = "CREATE TABLE messages (id INTEGER, kind INTEGER, lane INTEGER, acceptedAtMs INTEGER, key TEXT, "
                              "checksum INTEGER, size INTEGER, payload BLOB, settledAtMs INTEGER, result BLOB, tried INTEGER, "
                              "number HIDDEN)";

/// What the planner has chosen.
enum { ONE = 1, FROM = 2, THROUGH = 4, DESCENDING = 8, PAYLOADS = 16 };

typedef struct {
    sqlite3_vtab base;
    sqlite3 *connection;
    int isOfReceipts;
} Table;

typedef struct {
    sqlite3_vtab_cursor base;
    sqlite3_stmt *blocks;
    char table[24];
    int isDescending, isAtEnd;
    int index, count;
    postern_head heads[POSTERN_BLOCK_MESSAGES];
} Cursor;

static int connect(sqlite3 *connection, void *isOfReceipts, int argc, const char *const *argv, sqlite3_vtab **made, char **error) {
    int code = sqlite3_declare_vtab(connection, columns);
    if (code != SQLITE_OK) return code;
    Table *table = sqlite3_malloc(sizeof *table);
    if (!table) return SQLITE_NOMEM;
    *table = (Table){.connection = connection, .isOfReceipts = isOfReceipts != NULL};
    *made = &table->base;
    return SQLITE_OK;
}

static int disconnect(sqlite3_vtab *table) {
    sqlite3_free(table);
    return SQLITE_OK;
}

/// The views name the id `rowid`: SQLite 3.40 sorts what it merges by any other column.
static int is_id(int column) { return column == ID || column < 0; }

static int plan(sqlite3_vtab *table, sqlite3_index_info *info) {
    int number = -1, one = -1, from = -1, through = -1;
    for (int i = 0; i < info->nConstraint; i++) {
        if (!info->aConstraint[i].usable) continue;
        int column = info->aConstraint[i].iColumn, operation = info->aConstraint[i].op;
        if (column == NUMBER && operation == SQLITE_INDEX_CONSTRAINT_EQ) number = i;
        if (!is_id(column)) continue;
        if (operation == SQLITE_INDEX_CONSTRAINT_EQ) one = i;
        if (operation == SQLITE_INDEX_CONSTRAINT_GT || operation == SQLITE_INDEX_CONSTRAINT_GE) from = i;
        if (operation == SQLITE_INDEX_CONSTRAINT_LT || operation == SQLITE_INDEX_CONSTRAINT_LE) through = i;
    }
    if (number < 0) return SQLITE_CONSTRAINT;
    // SQLite compares the ids again, so whole blocks are enough, and a bound counts as inclusive.
    int argument = 0;
    info->aConstraintUsage[number].argvIndex = ++argument;
    info->aConstraintUsage[number].omit = 1;
    if (one >= 0) {
        info->aConstraintUsage[one].argvIndex = ++argument;
        info->idxNum = ONE;
    } else {
        if (from >= 0) info->aConstraintUsage[from].argvIndex = ++argument, info->idxNum |= FROM;
        if (through >= 0) info->aConstraintUsage[through].argvIndex = ++argument, info->idxNum |= THROUGH;
    }
    if (info->nOrderBy == 1 && is_id(info->aOrderBy[0].iColumn)) {
        info->orderByConsumed = 1;
        if (info->aOrderBy[0].desc) info->idxNum |= DESCENDING;
    }
    if (info->colUsed & (sqlite3_uint64)1 << PAYLOAD) info->idxNum |= PAYLOADS;
    info->estimatedRows = one >= 0 ? 1 : argument > 1 ? 10000 : 1000000;
    info->estimatedCost = one >= 0 ? 100 : (double)info->estimatedRows;
    return SQLITE_OK;
}

static int open(sqlite3_vtab *table, sqlite3_vtab_cursor **made) {
    Cursor *cursor = sqlite3_malloc(sizeof *cursor);
    if (!cursor) return SQLITE_NOMEM;
    memset(cursor, 0, offsetof(Cursor, heads));
    *made = &cursor->base;
    return SQLITE_OK;
}

static int close(sqlite3_vtab_cursor *base) {
    Cursor *cursor = (Cursor *)base;
    sqlite3_finalize(cursor->blocks);
    sqlite3_free(cursor);
    return SQLITE_OK;
}

static int failed(Cursor *cursor, int code) {
    Table *table = (Table *)cursor->base.pVtab;
    sqlite3_free(table->base.zErrMsg);
    const char *what = code == SQLITE_CORRUPT_VTAB ? "the heads of a block are damaged" : sqlite3_errmsg(table->connection);
    table->base.zErrMsg = sqlite3_mprintf("%s: %s", cursor->table, what);
    return code;
}

/// Reads the heads of the next block.
static int next_block(Cursor *cursor) {
    int code = sqlite3_step(cursor->blocks);
    cursor->isAtEnd = code != SQLITE_ROW;
    cursor->count = 0;
    if (cursor->isAtEnd) return code == SQLITE_DONE ? SQLITE_OK : failed(cursor, code);
    postern_head head = {.id = sqlite3_column_int64(cursor->blocks, 0), .acceptedAtMs = sqlite3_column_int64(cursor->blocks, 1)};
    const uint8_t *at = sqlite3_column_blob(cursor->blocks, 2), *end = at + sqlite3_column_bytes(cursor->blocks, 2);
    while (at < end) {
        if (cursor->count == POSTERN_BLOCK_MESSAGES || !(at = postern_next_head(&head, at, end)))
            return failed(cursor, SQLITE_CORRUPT_VTAB);
        cursor->heads[cursor->count++] = head;
    }
    if (cursor->count == 0) return failed(cursor, SQLITE_CORRUPT_VTAB);
    cursor->index = cursor->isDescending ? cursor->count - 1 : 0;
    return SQLITE_OK;
}

static int filter(sqlite3_vtab_cursor *base, int plan, const char *text, int argc, sqlite3_value **argv) {
    Cursor *cursor = (Cursor *)base;
    Table *table = (Table *)base->pVtab;
    sqlite3_finalize(cursor->blocks);
    cursor->blocks = NULL;
    cursor->isDescending = plan & DESCENDING;
    cursor->isAtEnd = 1;
    sqlite3_int64 from = INT64_MIN, through = INT64_MAX;
    int argument = 1;
    for (int i = 1; i < argc; i++) {
        // No id is less or greater than NULL.
        if (sqlite3_value_type(argv[i]) == SQLITE_NULL) return SQLITE_OK;
    }
    if (plan & (ONE | FROM)) from = sqlite3_value_int64(argv[argument]);
    if (plan & FROM) argument++;
    if (plan & (ONE | THROUGH)) through = sqlite3_value_int64(argv[argument]);
    const char *kind = table->isOfReceipts ? "receipts" : "blocks";
    sqlite3_snprintf(sizeof cursor->table, cursor->table, "%s_%d", kind, sqlite3_value_int(argv[0]));
    char *sql = sqlite3_mprintf(
        "SELECT first, acceptedAtMs, heads%s FROM %s WHERE first >= coalesce((SELECT max(first) FROM %s WHERE first <= ?1), ?1) "
        "AND first <= ?2 ORDER BY first %s",
        table->isOfReceipts ? ", settledAtMs, result" : plan & PAYLOADS ? ", payloads" : "", cursor->table, cursor->table, cursor->isDescending ? "DESC" : "ASC");
    if (!sql) return SQLITE_NOMEM;
    int code = sqlite3_prepare_v2(table->connection, sql, -1, &cursor->blocks, NULL);
    sqlite3_free(sql);
    if (code != SQLITE_OK) return failed(cursor, code);
    sqlite3_bind_int64(cursor->blocks, 1, from);
    sqlite3_bind_int64(cursor->blocks, 2, through);
    return next_block(cursor);
}

static int next(sqlite3_vtab_cursor *base) {
    Cursor *cursor = (Cursor *)base;
    cursor->index += cursor->isDescending ? -1 : 1;
    return cursor->index < 0 || cursor->index == cursor->count ? next_block(cursor) : SQLITE_OK;
}

static int is_at_end(sqlite3_vtab_cursor *base) { return ((Cursor *)base)->isAtEnd; }

static void read_payload(Cursor *cursor, sqlite3_context *context) {
    const postern_head *head = &cursor->heads[cursor->index];
    const char *payloads = sqlite3_column_blob(cursor->blocks, 3);
    // A payload that is not all there is damaged, which its checksum shows.
    if (head->size == 0 || head->offset + head->size > sqlite3_column_bytes(cursor->blocks, 3))
        sqlite3_result_zeroblob(context, 0);
    else
        sqlite3_result_blob(context, payloads + head->offset, (int)head->size, SQLITE_TRANSIENT);
}

static int column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column) {
    Cursor *cursor = (Cursor *)base;
    int isOfReceipts = ((Table *)base->pVtab)->isOfReceipts;
    const postern_head *head = &cursor->heads[cursor->index];
    switch (column) {
    case ID: sqlite3_result_int64(context, head->id); break;
    case KIND: sqlite3_result_int64(context, head->kind); break;
    case LANE: sqlite3_result_int64(context, head->lane); break;
    case ACCEPTED: sqlite3_result_int64(context, head->acceptedAtMs); break;
    case KEY:
        if (head->key) sqlite3_result_text(context, head->key, (int)head->keySize, SQLITE_TRANSIENT);
        break;
    case CHECKSUM: sqlite3_result_int64(context, head->checksum); break;
    case SIZE: sqlite3_result_int64(context, head->size); break;
    case TRIED: sqlite3_result_int64(context, head->tried); break;
    case PAYLOAD:
        if (!isOfReceipts) read_payload(cursor, context);
        break;
    case SETTLED:
    case RESULT:
        if (isOfReceipts) sqlite3_result_value(context, sqlite3_column_value(cursor->blocks, column == SETTLED ? 3 : 4));
        break;
    }
    return SQLITE_OK;
}

static int row_id(sqlite3_vtab_cursor *base, sqlite3_int64 *id) {
    Cursor *cursor = (Cursor *)base;
    *id = cursor->heads[cursor->index].id;
    return SQLITE_OK;
}

static const sqlite3_module module = {
    .xConnect = connect,
    .xDisconnect = disconnect,
    .xBestIndex = plan,
    .xOpen = open,
    .xClose = close,
    .xFilter = filter,
    .xNext = next,
    .xEof = is_at_end,
    .xColumn = column,
    .xRowid = row_id,
};

int postern_add_block_functions(sqlite3 *connection) {
    int code = sqlite3_create_module(connection, "postern_queued", &module, NULL);
    return code == SQLITE_OK ? sqlite3_create_module(connection, "postern_received", &module, (void *)&module) : code;
}
