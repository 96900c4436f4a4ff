import Testing

@testable import PosternStore

@Suite struct PostgresOptionsTests {
    private func parameters(_ url: String, password: String = "") throws -> PostgresParameters {
        var options = PostgresOptions(url: url)
        options.password = password
        return try PostgresParameters(options)
    }

    @Test(arguments: [
        "postgresql://db.example/x", "postgresql://10.0.0.1/x", "postgresql://[2001:db8::1]/x", "host=127.example.com",
        "postgresql://127.0.0.1,db.example/x", "host=localhost hostaddr=10.0.0.1", "",
    ]) func serverElsewhere_hasToProveItsName(url: String) throws {
        for host in try parameters(url).hosts { #expect(host["sslmode"] == "verify-full") }
    }

    @Test(arguments: [
        "postgresql:///x?host=/run/postgresql", "postgresql://localhost/x", "postgresql://127.0.0.2/x",
        "postgresql://[::1]/x", "host=/run,127.0.0.1", "host=db.example hostaddr=127.0.0.1",
    ]) func localServer_needsNoTLS(url: String) throws {
        for host in try parameters(url).hosts { #expect(host["sslmode"] == nil) }
    }

    @Test func url_overridesTheDefaults() throws {
        let hosts = try parameters("postgresql://db.example/x?sslmode=require&keepalives_idle=60").hosts
        #expect(hosts[0]["sslmode"] == "require")
        #expect(hosts[0]["keepalives_idle"] == "60")
        #expect(hosts[0]["target_session_attrs"] == "read-write")
    }

    @Test func eachHost_hasItsOwnPort_orTheCommonOne() throws {
        let own = try parameters("postgresql://a:1,b:2/x").hosts
        #expect(own.map { $0["host"] } == ["a", "b"])
        #expect(own.map { $0["port"] } == ["1", "2"])
        let common = try parameters("host=a,b port=7 dbname=x").hosts
        #expect(common.map { $0["port"] } == ["7", "7"])
        // libpq reports it.
        #expect(try parameters("host=a,b,c port=1,2").hosts.map { $0["port"] } == ["1,2"])
    }

    @Test func password_takesPrecedenceOverTheOneOfTheURL() throws {
        #expect(try parameters("postgresql://u:one@a/x").hosts[0]["password"] == "one")
        #expect(try parameters("postgresql://u:one@a/x", password: "two").hosts[0]["password"] == "two")
    }

    @Test func descriptions_showWhereTheStoreIs_andNoSecret() {
        var options = PostgresOptions(url: "postgresql://u:secret-1@db1:5433,db2/orders?sslpassword=secret-2")
        options.password = "secret-3"
        #expect(options.place == "db1:5433,db2/orders, schema postern")
        var dumped = ""
        dump(options, to: &dumped)
        for text in ["\(options)", String(reflecting: options), "\([options])", dumped] {
            #expect(!text.contains("secret"), "\(text)")
        }
    }

    @Test(arguments: [
        "postgresql://u:secr%zzet@a/x", "secret", "password='secret", "x=secret\"secret",
        "postgresql://u:secret@a/x?nothing=1", "postgresql://u:secret@[::1/x",
    ]) func urlThatIsNotValid_isRejected_withoutBeingShown(url: String) throws {
        let error = #expect(throws: PostgresError.self) { _ = try parameters(url) }
        #expect(error?.message.hasPrefix("the URL of the database is not valid: ") == true)
        #expect(error?.message.contains("secr") == false, "\(error?.message ?? "")")
        #expect(!PostgresOptions(url: url).description.contains("secr"))
    }
}
