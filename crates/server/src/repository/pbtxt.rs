//! A reader of protobuf's text format: text in, a tree of named fields out. It knows no message type.
//!
//! Lists become repeated fields, so `dims: [ 1, 2 ]` and `dims: 1 dims: 2` give the same tree.

use std::fmt;

/// Messages inside messages beyond this are refused.
const DEPTH_MAX: usize = 32;
/// Fields of one file beyond this are refused.
const FIELDS_MAX: usize = 100_000;

/// A place in the text, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The character in it.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why text is not protobuf text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}")]
pub struct SyntaxError {
    /// Where.
    pub at: Position,
    /// What was found and what should be there.
    pub why: String,
}

/// Fields in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
}

/// One field with one value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) at: Position,
    pub(super) value: Value,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Message(Message),
    /// A quoted string, its escapes resolved.
    Text(String),
    /// A number or a word (enum value, `true`, `inf`), as written.
    Word(String),
}

/// Reads a whole file.
pub(super) fn parse(text: &str) -> Result<Message, SyntaxError> {
    let mut parser = Parser { text, at: 0, line: 1, line_begin: 0, fields: 0 };
    parser.space();
    let message = parser.fields(None, 0)?;
    Ok(message)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_begin: usize,
    fields: usize,
}

impl Parser<'_> {
    /// Fields up to `end`, or to the end of the text when it is `None`.
    fn fields(&mut self, end: Option<char>, depth: usize) -> Result<Message, SyntaxError> {
        if depth > DEPTH_MAX {
            return Err(self.error(format!("messages are nested deeper than {DEPTH_MAX}")));
        }
        let mut message = Message::default();
        loop {
            match (self.peek(), end) {
                (None, None) => return Ok(message),
                (None, Some(end)) => return Err(self.error(format!("the text ends where '{end}' should be"))),
                (Some(found), Some(end)) if found == end => {
                    self.advance();
                    return Ok(message);
                }
                _ => self.field(&mut message, depth)?,
            }
            // Fields may be separated, by one comma or semicolon.
            if matches!(self.peek(), Some(',' | ';')) {
                self.advance();
            }
        }
    }

    fn field(&mut self, message: &mut Message, depth: usize) -> Result<(), SyntaxError> {
        let at = self.position();
        let name = self.word("a field name")?;
        if !name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            return Err(SyntaxError { at, why: format!("a field name cannot begin as `{name}` does") });
        }
        let colon = self.peek() == Some(':');
        if colon {
            self.advance();
        }
        if self.peek() == Some('[') {
            self.advance();
            return self.list(message, &name, depth);
        }
        let value = self.value(colon, depth)?;
        self.keep(message, Field { name, at, value })
    }

    /// The values of a list whose `[` is read, each as a field of its own.
    fn list(&mut self, message: &mut Message, name: &str, depth: usize) -> Result<(), SyntaxError> {
        if self.peek() == Some(']') {
            self.advance();
            return Ok(());
        }
        loop {
            let at = self.position();
            let value = self.value(true, depth)?;
            self.keep(message, Field { name: name.to_owned(), at, value })?;
            match self.peek() {
                Some(',') => self.advance(),
                Some(']') => {
                    self.advance();
                    return Ok(());
                }
                _ => return Err(self.expected("',' or ']'")),
            }
        }
    }

    fn keep(&mut self, message: &mut Message, field: Field) -> Result<(), SyntaxError> {
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            return Err(self.error(format!("there are more than {FIELDS_MAX} fields")));
        }
        message.fields.push(field);
        Ok(())
    }

    fn value(&mut self, colon: bool, depth: usize) -> Result<Value, SyntaxError> {
        let end = match self.peek() {
            Some('{') => '}',
            Some('<') => '>',
            _ if !colon => return Err(self.expected("':' or '{'")),
            Some('"' | '\'') => return self.strings().map(Value::Text),
            _ => return self.word("a value").map(Value::Word),
        };
        self.advance();
        self.fields(Some(end), depth + 1).map(Value::Message)
    }

    /// A name, a number or an enum value; a sign may stand before it.
    fn word(&mut self, what: &str) -> Result<String, SyntaxError> {
        let begin = self.at;
        if self.peek() == Some('-') {
            self.advance();
        }
        let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-');
        let length = self.text[self.at..].find(|c: char| !part(c)).unwrap_or(self.text.len() - self.at);
        if length == 0 {
            return Err(self.expected(what));
        }
        self.at += length;
        let word = self.text[begin..self.at].chars().filter(|c| !c.is_whitespace()).collect();
        self.space();
        Ok(word)
    }

    /// One or more quoted strings in a row, which count as one.
    fn strings(&mut self) -> Result<String, SyntaxError> {
        let begin = self.position();
        let mut bytes = Vec::new();
        while let Some(quote @ ('"' | '\'')) = self.peek() {
            self.at += 1;
            self.string(quote, &mut bytes)?;
            self.space();
        }
        String::from_utf8(bytes).map_err(|_| SyntaxError { at: begin, why: "the string is not UTF-8".into() })
    }

    fn string(&mut self, quote: char, out: &mut Vec<u8>) -> Result<(), SyntaxError> {
        loop {
            let Some(next) = self.peek() else { return Err(self.error("the string does not end".into())) };
            match next {
                '\n' => return Err(self.error("the string does not end on its line".into())),
                '\\' => self.escape(out)?,
                _ if next == quote => {
                    self.at += 1;
                    return Ok(());
                }
                _ => {
                    self.at += next.len_utf8();
                    out.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), SyntaxError> {
        let at = self.position();
        let bad = || SyntaxError { at, why: "this escape is not one of text format".into() };
        self.at += 1;
        let kind = self.peek().ok_or_else(bad)?;
        self.at += kind.len_utf8();
        if let Some(byte) = simple_escape(kind) {
            out.push(byte);
            return Ok(());
        }
        let (digits, radix) = match kind {
            '0'..='7' => {
                self.at -= 1;
                (3, 8)
            }
            'x' | 'X' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            _ => return Err(bad()),
        };
        let length = self.text[self.at..].chars().take(digits).take_while(|c| c.is_digit(radix)).count();
        let code = u32::from_str_radix(&self.text[self.at..self.at + length], radix).map_err(|_| bad())?;
        self.at += length;
        if matches!(kind, 'u' | 'U') {
            let character = char::from_u32(code).filter(|_| length == digits).ok_or_else(bad)?;
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            out.push(u8::try_from(code).map_err(|_| bad())?);
        }
        Ok(())
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    /// Past one punctuation character and the space after it.
    fn advance(&mut self) {
        self.at += self.peek().map_or(0, char::len_utf8);
        self.space();
    }

    /// Past white space and comments.
    fn space(&mut self) {
        while let Some(next) = self.peek() {
            match next {
                '\n' => {
                    self.at += 1;
                    self.line = self.line.saturating_add(1);
                    self.line_begin = self.at;
                }
                '#' => self.at += self.text[self.at..].find('\n').unwrap_or(self.text.len() - self.at),
                _ if next.is_whitespace() => self.at += next.len_utf8(),
                _ => return,
            }
        }
    }

    fn position(&self) -> Position {
        let column = self.text[self.line_begin..self.at].chars().count() + 1;
        Position { line: self.line, column: u32::try_from(column).unwrap_or(u32::MAX) }
    }

    fn expected(&self, what: &str) -> SyntaxError {
        let found = self.peek().map_or_else(|| "the end of the text".to_owned(), |c| format!("{c:?}"));
        self.error(format!("expected {what}, found {found}"))
    }

    fn error(&self, why: String) -> SyntaxError {
        SyntaxError { at: self.position(), why }
    }
}

/// The byte of an escape without digits.
fn simple_escape(kind: char) -> Option<u8> {
    match kind {
        'n' => Some(b'\n'),
        'r' => Some(b'\r'),
        't' => Some(b'\t'),
        'a' => Some(7),
        'b' => Some(8),
        'f' => Some(12),
        'v' => Some(11),
        '\\' | '\'' | '"' | '?' => u8::try_from(kind).ok(),
        _ => None,
    }
}
