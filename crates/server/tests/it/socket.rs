//! A WebSocket client that shows every byte: frames of RFC 6455 by hand.

use std::io::Read;

use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::Server;

pub struct Socket {
    pub client: Client,
}

/// What came from the server.
#[derive(Debug, PartialEq)]
pub enum Frame {
    Text(String),
    Ping,
    Close(u16, String),
    /// The connection ended without a word.
    Gone,
}

impl Socket {
    pub fn open(server: &Server, headers: &[&str]) -> Socket {
        let (socket, status) = Socket::try_open(server, headers);
        assert_eq!(status, 101);
        socket
    }

    pub fn try_open(server: &Server, headers: &[&str]) -> (Socket, u16) {
        let mut client = server.client();
        let upgrade = [
            "connection: upgrade",
            "upgrade: websocket",
            "sec-websocket-version: 13",
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        ];
        client.head("GET", "/v1/ws", &[&upgrade, headers].concat(), Some(0));
        let (status, said) = client.reply_head();
        if status == 101 {
            assert_eq!(said["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        }
        (Socket { client }, status)
    }

    /// One frame; clients mask.
    pub fn frame(&mut self, first: u8, payload: &[u8]) {
        let mut frame = vec![first];
        match payload.len() {
            length @ ..126 => frame.push(0x80 | length as u8),
            length @ ..65_536 => {
                frame.push(0x80 | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.client.write(&frame);
    }

    pub fn say(&mut self, message: &Value) {
        self.frame(0x81, message.to_string().as_bytes());
    }

    /// Asks in seed 000's way; the answer's payload.
    #[track_caller]
    pub fn ask(&mut self, request: Value) -> Value {
        self.say(&json!({"message_id": "m", "payload": request}));
        let answer = self.json();
        assert_eq!(answer["message_id"], "m", "{answer}");
        answer["payload"].clone()
    }

    /// The next message.
    #[track_caller]
    pub fn json(&mut self) -> Value {
        loop {
            match self.next() {
                Frame::Text(text) => return serde_json::from_str(&text).unwrap(),
                Frame::Ping => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next event of a subscription.
    #[track_caller]
    pub fn event(&mut self) -> Value {
        self.json()["payload"]["event"].clone()
    }

    pub fn next(&mut self) -> Frame {
        let mut head = [0; 2];
        if self.client.reader.read_exact(&mut head).is_err() {
            return Frame::Gone;
        }
        let length = match head[1] {
            126 => self.number(2),
            127 => self.number(8),
            length => u64::from(length),
        };
        let mut payload = vec![0; length as usize];
        if self.client.reader.read_exact(&mut payload).is_err() {
            return Frame::Gone;
        }
        match head[0] {
            0x81 => Frame::Text(String::from_utf8(payload).unwrap()),
            0x88 if payload.len() >= 2 => {
                let code = u16::from_be_bytes([payload[0], payload[1]]);
                Frame::Close(code, String::from_utf8_lossy(&payload[2..]).into_owned())
            }
            0x88 => Frame::Close(0, String::new()),
            0x89 => Frame::Ping,
            other => panic!("a frame that begins with {other:x}"),
        }
    }

    fn number(&mut self, bytes: usize) -> u64 {
        let mut number = [0; 8];
        self.client.reader.read_exact(&mut number[8 - bytes..]).unwrap();
        u64::from_be_bytes(number)
    }
}
