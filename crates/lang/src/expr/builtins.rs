//! The names of functions, methods and macros, and how each is called.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Macro {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
    TransformList,
    TransformMap,
    First,
    Last,
    Single,
    Count,
    Sum,
    Min,
    Max,
    Avg,
    OrderBy,
    OrderByDesc,
    GroupBy,
    Distinct,
    Reduce,
}

impl Macro {
    /// Name, what it does, and whether it belongs to the collection library rather than to CEL.
    pub(crate) const NAMES: [(&str, Macro, bool); 24] = [
        ("all", Macro::All, false),
        ("exists", Macro::Exists, false),
        ("exists_one", Macro::ExistsOne, false),
        ("existsOne", Macro::ExistsOne, false),
        ("filter", Macro::Filter, false),
        ("map", Macro::Map, false),
        ("transformList", Macro::TransformList, false),
        ("transformMap", Macro::TransformMap, false),
        ("any", Macro::Exists, true),
        ("where", Macro::Filter, true),
        ("select", Macro::Map, true),
        ("first", Macro::First, true),
        ("last", Macro::Last, true),
        ("single", Macro::Single, true),
        ("count", Macro::Count, true),
        ("sum", Macro::Sum, true),
        ("min", Macro::Min, true),
        ("max", Macro::Max, true),
        ("avg", Macro::Avg, true),
        ("orderBy", Macro::OrderBy, true),
        ("orderByDesc", Macro::OrderByDesc, true),
        ("groupBy", Macro::GroupBy, true),
        ("distinct", Macro::Distinct, true),
        ("reduce", Macro::Reduce, true),
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Text(Text),
    To(To),
    Rows(Rows),
    Part(Part),
    Math(Math),
    Size,
    Contains,
    Coalesce,
    Exists,
    Concat,
    Hash,
    Fingerprint,
    ShortId,
    CanonicalId,
    Add,
    Subtract,
    Field,
    AddDuration,
    LocalDate,
    DaysBetween,
}

/// Functions of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    StartsWith,
    EndsWith,
    Matches,
    Lower,
    Upper,
    LowerAscii,
    UpperAscii,
    Trim,
    Replace,
    Split,
    Join,
    Substring,
    CharAt,
    IndexOf,
    LastIndexOf,
    Reverse,
    Format,
    Quote,
    Encode,
    Decode,
}

/// Conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    Dyn,
    Type,
    Shown,
}

/// Methods of lists and of results that hold rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    First,
    Last,
    Single,
    Empty,
    Any,
    Ran,
    Count,
    Nodes,
    Sum,
    Min,
    Max,
    Avg,
    Take,
    Skip,
    Distinct,
    Keys,
    Values,
    Flatten,
}

/// Parts of an instant or a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    FullYear,
    Month,
    MonthFromOne,
    Quarter,
    Date,
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

/// The `math.` functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Math {
    Greatest,
    Least,
    Ceil,
    Floor,
    Round,
    Trunc,
    Abs,
    Sign,
    IsNan,
    IsInf,
    IsFinite,
    Sqrt,
    BitAnd,
    BitOr,
    BitXor,
    BitNot,
    ShiftLeft,
    ShiftRight,
}

/// How a function may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Plain,
    Method,
    Either,
}

/// Name, function, least and most arguments (the receiver is one), and how it is called.
pub(crate) type Row = (&'static str, Function, usize, usize, How);

/// Any number of arguments, which the length of the text bounds.
const MANY: usize = usize::MAX;

pub(crate) const FUNCTIONS: [Row; 105] = {
    use Function::{Math as M, Part as P, Rows as R, Text as T, To as C};
    use How::{Either, Method, Plain};
    [
        ("size", Function::Size, 1, 1, Either),
        ("contains", Function::Contains, 2, 2, Either),
        ("includes", Function::Contains, 2, 2, Method),
        ("startsWith", T(Text::StartsWith), 2, 2, Method),
        ("endsWith", T(Text::EndsWith), 2, 2, Method),
        ("matches", T(Text::Matches), 2, 2, Either),
        ("lower", T(Text::Lower), 1, 1, Either),
        ("upper", T(Text::Upper), 1, 1, Either),
        ("lowerAscii", T(Text::LowerAscii), 1, 1, Method),
        ("upperAscii", T(Text::UpperAscii), 1, 1, Method),
        ("trim", T(Text::Trim), 1, 1, Either),
        ("replace", T(Text::Replace), 3, 4, Method),
        ("split", T(Text::Split), 2, 3, Method),
        ("join", T(Text::Join), 1, 2, Method),
        ("substring", T(Text::Substring), 2, 3, Method),
        ("charAt", T(Text::CharAt), 2, 2, Method),
        ("indexOf", T(Text::IndexOf), 2, 3, Method),
        ("lastIndexOf", T(Text::LastIndexOf), 2, 3, Method),
        ("reverse", T(Text::Reverse), 1, 1, Method),
        ("format", T(Text::Format), 2, 2, Method),
        ("strings.quote", T(Text::Quote), 1, 1, Plain),
        ("base64.encode", T(Text::Encode), 1, 1, Plain),
        ("base64.decode", T(Text::Decode), 1, 1, Plain),
        ("bool", C(To::Bool), 1, 1, Plain),
        ("int", C(To::Int), 1, 1, Plain),
        ("uint", C(To::Uint), 1, 1, Plain),
        ("double", C(To::Double), 1, 1, Plain),
        ("string", C(To::String), 1, 1, Plain),
        ("bytes", C(To::Bytes), 1, 1, Plain),
        ("timestamp", C(To::Timestamp), 1, 1, Plain),
        ("duration", C(To::Duration), 1, 1, Plain),
        ("dyn", C(To::Dyn), 1, 1, Plain),
        ("type", C(To::Type), 1, 1, Plain),
        ("toString", C(To::Shown), 1, 1, Either),
        ("first", R(Rows::First), 1, 1, Either),
        ("last", R(Rows::Last), 1, 1, Either),
        ("single", R(Rows::Single), 1, 1, Method),
        ("empty", R(Rows::Empty), 1, 1, Either),
        ("any", R(Rows::Any), 1, 1, Method),
        ("ran", R(Rows::Ran), 1, 1, Method),
        ("count", R(Rows::Count), 1, 1, Either),
        ("len", R(Rows::Count), 1, 1, Either),
        ("nodes", R(Rows::Nodes), 1, 1, Method),
        ("sum", R(Rows::Sum), 1, 1, Method),
        ("min", R(Rows::Min), 1, 1, Method),
        ("max", R(Rows::Max), 1, 1, Method),
        ("avg", R(Rows::Avg), 1, 1, Method),
        ("take", R(Rows::Take), 2, 2, Method),
        ("skip", R(Rows::Skip), 2, 2, Method),
        ("distinct", R(Rows::Distinct), 1, 1, Method),
        ("keys", R(Rows::Keys), 1, 1, Method),
        ("values", R(Rows::Values), 1, 1, Method),
        ("flatten", R(Rows::Flatten), 1, 1, Method),
        ("getFullYear", P(Part::FullYear), 1, 2, Method),
        ("getMonth", P(Part::Month), 1, 2, Method),
        ("getDate", P(Part::Date), 1, 2, Method),
        ("getDayOfMonth", P(Part::DayOfMonth), 1, 2, Method),
        ("getDayOfWeek", P(Part::DayOfWeek), 1, 2, Method),
        ("getDayOfYear", P(Part::DayOfYear), 1, 2, Method),
        ("getHours", P(Part::Hours), 1, 2, Method),
        ("getMinutes", P(Part::Minutes), 1, 2, Method),
        ("getSeconds", P(Part::Seconds), 1, 2, Method),
        ("getMilliseconds", P(Part::Milliseconds), 1, 2, Method),
        ("year", P(Part::FullYear), 1, 2, Plain),
        ("month", P(Part::MonthFromOne), 1, 2, Plain),
        ("dayOfMonth", P(Part::Date), 1, 2, Plain),
        ("quarter", P(Part::Quarter), 1, 2, Plain),
        ("math.greatest", M(Math::Greatest), 1, MANY, Plain),
        ("math.least", M(Math::Least), 1, MANY, Plain),
        ("math.ceil", M(Math::Ceil), 1, 1, Plain),
        ("math.floor", M(Math::Floor), 1, 1, Plain),
        ("math.round", M(Math::Round), 1, 1, Plain),
        ("math.trunc", M(Math::Trunc), 1, 1, Plain),
        ("math.abs", M(Math::Abs), 1, 1, Plain),
        ("math.sign", M(Math::Sign), 1, 1, Plain),
        ("math.isNaN", M(Math::IsNan), 1, 1, Plain),
        ("math.isInf", M(Math::IsInf), 1, 1, Plain),
        ("math.isFinite", M(Math::IsFinite), 1, 1, Plain),
        ("math.sqrt", M(Math::Sqrt), 1, 1, Plain),
        ("math.bitAnd", M(Math::BitAnd), 2, 2, Plain),
        ("math.bitOr", M(Math::BitOr), 2, 2, Plain),
        ("math.bitXor", M(Math::BitXor), 2, 2, Plain),
        ("math.bitNot", M(Math::BitNot), 1, 1, Plain),
        ("math.bitShiftLeft", M(Math::ShiftLeft), 2, 2, Plain),
        ("math.bitShiftRight", M(Math::ShiftRight), 2, 2, Plain),
        ("abs", M(Math::Abs), 1, 1, Plain),
        ("ceil", M(Math::Ceil), 1, 1, Plain),
        ("floor", M(Math::Floor), 1, 1, Plain),
        ("round", M(Math::Round), 1, 1, Plain),
        ("min", M(Math::Least), 1, MANY, Plain),
        ("max", M(Math::Greatest), 1, MANY, Plain),
        ("coalesce", Function::Coalesce, 1, MANY, Plain),
        ("exists", Function::Exists, 1, 1, Plain),
        ("concat", Function::Concat, 0, MANY, Plain),
        ("hash", Function::Hash, 1, MANY, Plain),
        ("fingerprint", Function::Fingerprint, 1, 1, Plain),
        ("shortId", Function::ShortId, 1, 1, Plain),
        ("canonicalId", Function::CanonicalId, 2, 2, Plain),
        ("add", Function::Add, 2, 2, Plain),
        ("sub", Function::Subtract, 2, 2, Plain),
        ("field", Function::Field, 2, 2, Plain),
        ("addDuration", Function::AddDuration, 2, 2, Plain),
        ("localDate", Function::LocalDate, 1, 2, Plain),
        ("daysBetween", Function::DaysBetween, 2, 2, Plain),
        ("trimSpace", T(Text::Trim), 1, 1, Method),
    ]
};

/// Functions that read a root by another name: `var("X")` is `vars["X"]`, `input()` is `input`.
pub(crate) const READERS: [(&str, &str, usize); 9] = [
    ("var", "vars", 1),
    ("systemVar", "system", 1),
    ("secret", "secrets", 1),
    ("systemSecret", "system_secrets", 1),
    ("step", "steps", 1),
    ("input", "input", 0),
    ("error", "error", 0),
    ("now", "now", 0),
    ("timestamp", "now", 0),
];

/// Functions that change something outside; they are steps, never part of an expression.
pub const EFFECTS: [&str; 2] = ["publishEvent", "si"];

/// Compiled in place, not called.
pub(crate) const FORMS: [&str; 4] = ["has", "cond", "when", "cel.bind"];

/// Names of types that stand for themselves.
pub(crate) const TYPES: [&str; 12] = [
    "null_type",
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "type",
    "google.protobuf.Timestamp",
    "google.protobuf.Duration",
];

/// Whether a call of this name, without a receiver, is one of the language.
pub(crate) fn is_function(name: &str) -> bool {
    let plain = FUNCTIONS.iter().any(|(known, .., how)| *known == name && *how != How::Method);
    plain || READERS.iter().any(|(known, ..)| *known == name) || FORMS.contains(&name)
}

/// A method or function by its name, the first letter in either case.
pub(crate) fn either_case(name: &str, is: impl Fn(&str) -> bool) -> Option<String> {
    if is(name) {
        return Some(name.to_owned());
    }
    let mut letters = name.chars();
    let first = letters.next().filter(|c| c.is_ascii_uppercase())?;
    let lower = format!("{}{}", first.to_ascii_lowercase(), letters.as_str());
    is(&lower).then_some(lower)
}
