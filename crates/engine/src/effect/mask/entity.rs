//! Characters as HTML writes them: by number or by name, and once more for each time that it was escaped.

/// Of ASCII, and of what typists put in its place.
#[rustfmt::skip]
const NAMED: &[(&str, char)] = &[
    ("Tab", '\t'), ("NewLine", '\n'), ("excl", '!'), ("quot", '"'), ("num", '#'), ("dollar", '$'),
    ("percnt", '%'), ("amp", '&'), ("apos", '\''), ("lpar", '('), ("rpar", ')'), ("ast", '*'),
    ("midast", '*'), ("plus", '+'), ("comma", ','), ("period", '.'), ("sol", '/'), ("colon", ':'),
    ("semi", ';'), ("lt", '<'), ("equals", '='), ("gt", '>'), ("quest", '?'), ("commat", '@'),
    ("lsqb", '['), ("lbrack", '['), ("bsol", '\\'), ("rsqb", ']'), ("rbrack", ']'), ("Hat", '^'),
    ("lowbar", '_'), ("UnderBar", '_'), ("grave", '`'), ("DiacriticalGrave", '`'), ("lcub", '{'),
    ("lbrace", '{'), ("verbar", '|'), ("vert", '|'), ("VerticalLine", '|'), ("rcub", '}'), ("rbrace", '}'),
    ("euro", '€'), ("hyphen", '‐'), ("dash", '‐'), ("ndash", '–'), ("mdash", '—'), ("lsquo", '‘'),
    ("rsquo", '’'), ("ldquo", '“'), ("rdquo", '”'), ("hellip", '…'), ("trade", '™'),
];

/// Of U+00A0 to U+00FF, in order.
const LATIN: &str = "\
    nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 \
    sup3 acute micro para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc \
    Atilde Auml Aring AElig Ccedil Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve \
    Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml Yacute THORN szlig agrave aacute \
    acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml eth ntilde \
    ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml";

/// What an `&` at `at` may begin, and where that ends. `&amp;quot;` is a quote that was escaped twice, or an ampersand.
pub(super) fn readings(text: &[u8], at: usize, deep: usize) -> Vec<(char, usize)> {
    let (mut found, mut at) = (Vec::new(), at + 1);
    for _ in 0..deep {
        let Some((c, end)) = one(text, at) else { break };
        found.push((c, end));
        if c != '&' {
            break;
        }
        at = end;
    }
    found
}

/// What follows an ampersand.
fn one(text: &[u8], at: usize) -> Option<(char, usize)> {
    let rest = text.get(at..)?;
    let (c, long) = match rest {
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16).map(|(c, long)| (c, long + 2))?,
        [b'#', digits @ ..] => number(digits, 10).map(|(c, long)| (c, long + 1))?,
        _ => named(rest)?,
    };
    let closed = usize::from(rest.get(long) == Some(&b';'));
    Some((c, at + long + closed))
}

fn number(text: &[u8], radix: u32) -> Option<(char, usize)> {
    let long = text.iter().take(10).take_while(|byte| (**byte as char).is_digit(radix)).count();
    let digits = std::str::from_utf8(&text[..long]).ok()?;
    let c = char::from_u32(u32::from_str_radix(digits, radix).ok()?)?;
    Some((c, long))
}

fn named(text: &[u8]) -> Option<(char, usize)> {
    let long = text.iter().take(20).take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let name = std::str::from_utf8(&text[..long]).ok()?;
    let latin = || {
        let place = LATIN.split(' ').position(|known| known == name)?;
        char::from_u32(0xa0 + place as u32)
    };
    let known = NAMED.iter().find(|(known, _)| *known == name).map(|(_, c)| *c);
    known.or_else(latin).map(|c| (c, long))
}
