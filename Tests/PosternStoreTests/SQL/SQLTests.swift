import PosternCore
import Testing

@testable import PosternStore

/// About SQLite itself: how statements bind and read values.
@Suite struct SQLTests {
    private func withTable(_ body: (SQL) throws -> Void) throws {
        let sql = SQL(try SQLiteConnection(":memory:"))
        try sql.run("CREATE TABLE queue_7 (id INTEGER PRIMARY KEY, a, b, c, d)")
        try body(sql)
        // Fails if a statement is left.
        try sql.close()
    }

    @Test func values_comeBack_asTheyWereBound() throws {
        try withTable { sql in
            let number = UpstreamNumber(rawValue: 7)
            let moment = Timestamp(milliseconds: 1_700_000_000_123)
            try sql.run(
                "INSERT INTO queue_# (id, a, b, c, d) VALUES (?, ?, ?, ?, ?)", of: number, MessageID(rawValue: 5),
                moment, "a\0ü", [0, 255] as [UInt8], true)
            try sql.each("SELECT id, a, b, c, d FROM queue_#", of: number) { row in
                let (id, at, text, bytes): (MessageID, Timestamp, String, [UInt8]) = (row[0], row[1], row[2], row[3])
                let flag: Bool = row[4]
                #expect(id == MessageID(rawValue: 5))
                #expect(at == moment)
                #expect(text == "a\0ü")
                #expect(bytes == [0, 255])
                #expect(flag)
            }
        }
    }

    @Test func nil_isNull_andEmptyIsNot() throws {
        try withTable { sql in
            try sql.run(
                "INSERT INTO queue_7 (a, b, c, d) VALUES (?, ?, ?, ?)", nil as Int?, "", [] as [UInt8], nil as String?)
            try sql.each("SELECT a, b, c, d FROM queue_7") { row in
                let (a, b, c, d): (Int?, String?, [UInt8]?, String?) = (row[0], row[1], row[2], row[3])
                #expect(a == nil)
                #expect(b == "")
                #expect(c == [])
                #expect(d == nil)
            }
            #expect(try sql.value("SELECT count(*) FROM queue_7 WHERE b IS NULL OR c IS NULL", as: Int.self) == 0)
        }
    }

    @Test func statement_isUsableAgain_afterAnError_andAfterAnEarlyEnd() throws {
        try withTable { sql in
            for id in [1, 1, 2] as [Int] {
                _ = try? sql.run("INSERT INTO queue_7 (id) VALUES (?)", id)
            }
            #expect(throws: SQLiteError.self) { try sql.run("INSERT INTO queue_7 (id) VALUES (?)", 2) }
            for _ in 0..<2 {
                #expect(try sql.value("SELECT id FROM queue_7 ORDER BY id", as: Int.self) == 1)
                let ids = try sql.all("SELECT id FROM queue_7 ORDER BY id") { $0[0] as Int }
                #expect(ids == [1, 2])
            }
            #expect(try sql.run("DELETE FROM queue_7 WHERE id > ?", 0) == 2)
            #expect(try !sql.exists("SELECT 1 FROM queue_7"))
        }
    }

    @Test func statement_survivesAChangeOfTheSchema() throws {
        try withTable { sql in
            for table in 0..<3 {
                try sql.run("INSERT INTO queue_7 (a) VALUES (?)", table)
                try sql.connection.execute("CREATE TABLE more_\(table) (x)")
                try sql.connection.execute("DROP TABLE more_\(table)")
            }
            #expect(try sql.value("SELECT count(*) FROM queue_7", as: Int.self) == 3)
        }
    }
}
