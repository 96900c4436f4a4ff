import CSQLite

/// What applies to all connections of this process.
enum SQLiteLibrary {
    /// Use it before a connection is opened.
    static let isPrepared: Void = {
        postern_sqlite_count_no_memory()
        _ = FailedReads.areCounted
        _ = LogIndex.isMappedWithBlocks
    }()
}
