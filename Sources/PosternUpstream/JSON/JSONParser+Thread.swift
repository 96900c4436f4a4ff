import Glibc

extension JSONParser {
    /// The parser of the calling thread, created at its first use and freed when the thread ends. For C callbacks and
    /// other code that cannot keep a parser.
    public static var ofThisThread: JSONParser {
        if let known = pthread_getspecific(parserKey) {
            return Unmanaged<JSONParser>.fromOpaque(known).takeUnretainedValue()
        }
        let parser = JSONParser()
        pthread_setspecific(parserKey, Unmanaged.passRetained(parser).toOpaque())
        return parser
    }
}

private let parserKey: pthread_key_t = {
    var key = pthread_key_t()
    let failure = pthread_key_create(&key) { parser in
        guard let parser else { return }
        Unmanaged<JSONParser>.fromOpaque(parser).release()
    }
    precondition(failure == 0, "no thread-specific key left")
    return key
}()
