//! Expressions by chance that mean the same in CEL and here: each is made for a type, so that no operator meets types that
//! only one of the two lets through. What fails, fails by its values: overflow, division by zero, an index too large.

/// Numbers that depend on the seed alone.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Over these names, as `oracle` binds them.
const INTS: &[&str] =
    &["0", "1", "2", "7", "-3", "10", "9223372036854775807", "v.i", "v.j", "v.m.k", "v.l[1]", "v.l[9]"];
const DOUBLES: &[&str] = &["0.0", "1.5", "-2.25", "100.0", "0.1", "v.d", "v.e"];
const TEXTS: &[&str] = &["''", "'a'", "'abc'", "'über'", "\"x y\"", "v.s", "v.t", "v.m.w"];
const LISTS: &[&str] = &["[]", "[1]", "[3, 1, 2]", "v.l"];
const BOOLS: &[&str] = &["true", "false", "v.b", "has(v.s)", "has(v.none)", "has(v.m.k)"];

#[derive(Clone, Copy)]
pub enum Type {
    Bool,
    Int,
    Double,
    Text,
    List,
}

pub const TYPES: [Type; 5] = [Type::Bool, Type::Int, Type::Double, Type::Text, Type::List];

/// An expression of this type, at most `depth` operators deep.
pub fn expression(chance: &mut Chance, of: Type, depth: u32) -> String {
    if depth == 0 || chance.below(6) == 0 {
        let leaves = match of {
            Type::Bool => BOOLS,
            Type::Int => INTS,
            Type::Double => DOUBLES,
            Type::Text => TEXTS,
            Type::List => LISTS,
        };
        return chance.pick(leaves).to_owned();
    }
    if chance.below(8) == 0 {
        let test = expression(chance, Type::Bool, depth - 1);
        let (yes, no) = (expression(chance, of, depth - 1), expression(chance, of, depth - 1));
        return format!("({test} ? {yes} : {no})");
    }
    match of {
        Type::Bool => boolean(chance, depth - 1),
        Type::Int => integer(chance, depth - 1),
        Type::Double => two(chance, Type::Double, &["+", "-", "*", "/"], depth - 1),
        Type::Text => text(chance, depth - 1),
        Type::List => list(chance, depth - 1),
    }
}

fn two(chance: &mut Chance, of: Type, operators: &[&str], depth: u32) -> String {
    let (left, right) = (expression(chance, of, depth), expression(chance, of, depth));
    format!("({left} {} {right})", chance.pick(operators))
}

fn boolean(chance: &mut Chance, depth: u32) -> String {
    const ORDER: &[&str] = &["==", "!=", "<", "<=", ">", ">="];
    match chance.below(9) {
        0 => two(chance, Type::Bool, &["&&", "||", "==", "!="], depth),
        1 => format!("!({})", expression(chance, Type::Bool, depth)),
        2 => two(chance, Type::Int, ORDER, depth),
        3 => two(chance, Type::Double, ORDER, depth),
        4 => two(chance, Type::Text, ORDER, depth),
        5 => two(chance, Type::List, &["==", "!="], depth),
        6 => {
            let (of, other) = (expression(chance, Type::Text, depth), expression(chance, Type::Text, depth));
            format!("({of}).{}({other})", chance.pick(&["contains", "startsWith", "endsWith"]))
        }
        7 => {
            format!("({} in {})", expression(chance, Type::Int, depth), expression(chance, Type::List, depth))
        }
        _ => {
            let over = expression(chance, Type::List, depth);
            let test = over_variable(chance, depth);
            format!("({over}).{}(x, {test})", chance.pick(&["all", "exists", "exists_one"]))
        }
    }
}

/// A yes or no about the variable `x` of a macro.
fn over_variable(chance: &mut Chance, depth: u32) -> String {
    let operator = chance.pick(&["==", "!=", "<", ">"]);
    format!("x {operator} {}", expression(chance, Type::Int, depth.min(1)))
}

fn integer(chance: &mut Chance, depth: u32) -> String {
    match chance.below(7) {
        0..=3 => two(chance, Type::Int, &["+", "-", "*", "/", "%"], depth),
        4 => format!("size({})", expression(chance, Type::Text, depth)),
        5 => format!("size({})", expression(chance, Type::List, depth)),
        _ => format!("({})[{}]", expression(chance, Type::List, depth), chance.below(4)),
    }
}

fn text(chance: &mut Chance, depth: u32) -> String {
    match chance.below(3) {
        0 => format!("string({})", expression(chance, Type::Int, depth)),
        _ => two(chance, Type::Text, &["+"], depth),
    }
}

fn list(chance: &mut Chance, depth: u32) -> String {
    let over = expression(chance, Type::List, depth);
    match chance.below(4) {
        0 => format!("({over} + {})", expression(chance, Type::List, depth)),
        1 => format!("({over}).filter(x, {})", over_variable(chance, depth)),
        2 => format!("({over}).map(x, x + {})", expression(chance, Type::Int, depth.min(1))),
        _ => format!("[{}, {}]", expression(chance, Type::Int, depth), expression(chance, Type::Int, depth)),
    }
}
