/// The examples of the specification's section 4.5 and the texts of 11.1, byte for byte.
enum CurioVectors {
    static let visitor = "7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01"
    static let session = "6d551000-a21d-11e4-8123-03ab5c7d9e1f"
    static let apiKey = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
    static let trackingCode = "GW7DEM01"

    static let e1 = Example(
        "/visit/create",
        "apiKey=0f1e2d3c4b5a69788796a5b4c3d2e1f0&sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&sessionTimeout=30&visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&screenWidth=750&screenHeight=1334&lang=tr-TR&simOperator=TURKCELL&simOpCountry=286&networkOpName=TURKCELL&connType=wifi&brand=Apple&model=iPhone&osType=iOS&osVer=9.2.1&curioSdkVer=1.2.4&appVer=2.4.0&batteryLevel=80&bluetooth=off&storage=10240"
    )
    static let e2 = Example(
        "/hit/create",
        "sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&sessionTimeout=30&visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&pageTitle=Ana%2Bsayfa%2B%25E2%2580%2593%2B%25C5%259Eark%25C4%25B1lar&path=%252Fm%25C3%25BCzik%253Fx%253D1%252B1%2526y%253D%252520"
    )
    static let e3 = Example(
        "/hit/end",
        "sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&sessionTimeout=30&visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&pageTitle=Ana%2Bsayfa%2B%25E2%2580%2593%2B%25C5%259Eark%25C4%25B1lar&path=%252Fm%25C3%25BCzik%253Fx%253D1%252B1%2526y%253D%252520&hitCode=e3b0c44298fc4c149afbf4c8996fb924"
    )
    static let e4 = Example(
        "/event/create",
        "sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&sessionTimeout=30&visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&eventKey=Buton%253EGiri%25C5%259F&eventValue=100%2525%2BA%252BB"
    )
    static let e5 = Example(
        "/event/end",
        "sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&sessionTimeout=30&visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&eventKey=Buton%253EGiri%25C5%259F&eventValue=100%2525%2BA%252BB&eventDuration=35045&eventCode=d7a8fbb307d7809469ca9abcb0082e4f"
    )
    static let e6 = Example(
        "/visit/end",
        "sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&sessionTimeout=30&visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01"
    )
    static let e7 = Example(
        "/batch/create",
        "sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&sessionTimeout=30&visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&data=%5B%7B%22type%22%3A2%2C%22timestamp%22%3A%221421920801000%22%2C%22sessionCode%22%3A%226d551000-a21d-11e4-8123-03ab5c7d9e1f%22%2C%22pageTitle%22%3A%22Ana%2Bsayfa%22%2C%22path%22%3A%22%252Fhome%22%2C%22hitCode%22%3A%226f9619ff-8b86-4d01-b42d-00cf4fc964ff%22%7D%2C%7B%22type%22%3A4%2C%22timestamp%22%3A%221421920802500%22%2C%22sessionCode%22%3A%226d551000-a21d-11e4-8123-03ab5c7d9e1f%22%2C%22eventKey%22%3A%22Buton%253EGiri%25C5%259F%22%2C%22eventValue%22%3A%22100%2525%2BA%252BB%22%2C%22eventCode%22%3A%227d444840-9dc0-41d1-b245-5ffdce74fad2%22%7D%2C%7B%22type%22%3A7%2C%22timestamp%22%3A%221421920837545%22%2C%22sessionCode%22%3A%226d551000-a21d-11e4-8123-03ab5c7d9e1f%22%2C%22eventKey%22%3A%22Buton%253EGiri%25C5%259F%22%2C%22eventValue%22%3A%22100%2525%2BA%252BB%22%2C%22eventDuration%22%3A%2235045%22%2C%22eventCode%22%3A%227d444840-9dc0-41d1-b245-5ffdce74fad2%22%7D%2C%7B%22type%22%3A3%2C%22timestamp%22%3A%221421920840000%22%2C%22sessionCode%22%3A%226d551000-a21d-11e4-8123-03ab5c7d9e1f%22%2C%22pageTitle%22%3A%22Ana%2Bsayfa%22%2C%22path%22%3A%22%252Fhome%22%2C%22hitCode%22%3A%226f9619ff-8b86-4d01-b42d-00cf4fc964ff%22%7D%5D"
    )
    static let e8 = Example(
        "/offline/create",
        "apiKey=0f1e2d3c4b5a69788796a5b4c3d2e1f0&sessionTimeout=30&visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&screenWidth=750&screenHeight=1334&lang=tr-TR&simOperator=TURKCELL&simOpCountry=286&networkOpName=TURKCELL&connType=wifi&brand=Apple&model=iPhone&osType=iOS&osVer=9.2.1&curioSdkVer=1.2.4&appVer=2.4.0&batteryLevel=80&bluetooth=off&storage=10240&data=%5B%7B%22type%22%3A0%2C%22timestamp%22%3A%221421920800000%22%2C%22sessionCode%22%3A%226d551000-a21d-11e4-8123-03ab5c7d9e1f%22%7D%2C%7B%22type%22%3A2%2C%22timestamp%22%3A%221421920801000%22%2C%22sessionCode%22%3A%226d551000-a21d-11e4-8123-03ab5c7d9e1f%22%2C%22pageTitle%22%3A%22Ana%2Bsayfa%22%2C%22path%22%3A%22%252Fhome%22%2C%22hitCode%22%3A%226f9619ff-8b86-4d01-b42d-00cf4fc964ff%22%7D%2C%7B%22type%22%3A3%2C%22timestamp%22%3A%221421920840000%22%2C%22sessionCode%22%3A%226d551000-a21d-11e4-8123-03ab5c7d9e1f%22%2C%22pageTitle%22%3A%22Ana%2Bsayfa%22%2C%22path%22%3A%22%252Fhome%22%2C%22hitCode%22%3A%226f9619ff-8b86-4d01-b42d-00cf4fc964ff%22%7D%2C%7B%22type%22%3A1%2C%22timestamp%22%3A%221421920841000%22%2C%22sessionCode%22%3A%226d551000-a21d-11e4-8123-03ab5c7d9e1f%22%7D%5D"
    )
    static let e9 = Example(
        "/visitor/setPushData",
        "visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&pushId=&pushToken=9c1e5d0f7a2b4c6d8e9fa0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f"
    )
    static let e10 = Example(
        "/visitor/setPushData",
        "visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&pushId=5542fe0ee4b0d5e3a1b2c3d4&pushToken=9c1e5d0f7a2b4c6d8e9fa0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f"
    )
    static let e11 = Example(
        "/visitor/setPushData",
        "visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&pushId=&pushToken=9c1e5d0f7a2b4c6d8e9fa0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f&customId=m%C3%BC%C5%9Fteri+42%2F%C3%BC%2Bx"
    )
    static let e12 = Example(
        "/location/set",
        "visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&lat=41.0082376&long=28.9783589"
    )
    static let e13 = Example(
        "/visitor/setUserTag",
        "visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&userTags=%7B%22AGE%22%3A%2227%22%2C%22%C5%9EEH%C4%B0R%22%3A%22Kad%C4%B1k%C3%B6y%22%7D"
    )
    static let e14 = Example(
        "/visitor/unregister",
        "sessionCode=6d551000-a21d-11e4-8123-03ab5c7d9e1f&sessionTimeout=30&visitorCode=7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01&trackingCode=GW7DEM01&customId=user-42"
    )

    struct Example {
        let suffix: String
        let body: String

        init(_ suffix: String, _ body: String) {
            self.suffix = suffix
            self.body = body
        }
    }

    /// A text, after `enc` once, after `enc` twice.
    static let texts: [(text: String, inner: String, outer: String)] = [
        (
            "Master view",
            "Master+view",
            "Master%2Bview"
        ),
        (
            "Master-view",
            "Master-view",
            "Master-view"
        ),
        (
            "Ana sayfa – Şarkılar",
            "Ana+sayfa+%E2%80%93+%C5%9Eark%C4%B1lar",
            "Ana%2Bsayfa%2B%25E2%2580%2593%2B%25C5%259Eark%25C4%25B1lar"
        ),
        (
            "/müzik?x=1+1&y=%20",
            "%2Fm%C3%BCzik%3Fx%3D1%2B1%26y%3D%2520",
            "%252Fm%25C3%25BCzik%253Fx%253D1%252B1%2526y%253D%252520"
        ),
        (
            "100% A+B",
            "100%25+A%2BB",
            "100%2525%2BA%252BB"
        ),
        (
            "Cat1>Cat2>Cat3",
            "Cat1%3ECat2%3ECat3",
            "Cat1%253ECat2%253ECat3"
        ),
        (
            "~.-_*'()!",
            "~.-_%2A%27%28%29%21",
            "~.-_%252A%2527%2528%2529%2521"
        ),
        (
            "日本語",
            "%E6%97%A5%E6%9C%AC%E8%AA%9E",
            "%25E6%2597%25A5%25E6%259C%25AC%25E8%25AA%259E"
        ),
        (
            "😀",
            "%F0%9F%98%80",
            "%25F0%259F%2598%2580"
        ),
        (
            "line1\nline2",
            "line1%0Aline2",
            "line1%250Aline2"
        ),
        (
            "",
            "",
            ""
        ),
    ]
}
