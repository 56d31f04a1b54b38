//! What a token lets its holder do: a role's permissions, cut down to its scopes, spaces and band. Pure.

use model::event::Band;
use model::{Code, Problem, Timestamp};
use serde::{Deserialize, Serialize};

use super::Sight;
use crate::engine::DEFAULT_TENANT;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Owner,
    Admin,
    Editor,
    Viewer,
    Publisher,
}

impl Role {
    pub const ALL: [Role; 5] = [Role::Owner, Role::Admin, Role::Editor, Role::Viewer, Role::Publisher];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Owner => "owner",
            Role::Admin => "admin",
            Role::Editor => "editor",
            Role::Viewer => "viewer",
            Role::Publisher => "publisher",
        }
    }

    pub fn parse(text: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Everything below is the next role's; publishers stand apart: they bring events and see nothing.
    pub fn permissions(self) -> Permissions {
        let read = Permissions::of(&[
            Permission::EventRead,
            Permission::GroupRead,
            Permission::EntityRead,
            Permission::Read,
        ]);
        let write = read
            | Permissions::of(&[
                Permission::EventWrite,
                Permission::GroupWrite,
                Permission::GroupConsume,
                Permission::EntityWrite,
                Permission::AutomationWrite,
                Permission::TaskWork,
            ]);
        match self {
            Role::Publisher => Permissions::of(&[Permission::EventWrite]),
            Role::Viewer => read,
            Role::Editor => write,
            Role::Admin => write | Permissions::of(&[Permission::AutomationAdmin, Permission::Admin]),
            Role::Owner => Permissions::ALL,
        }
    }
}

/// One thing that may be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Permission {
    EventRead = 1,
    EventWrite = 2,
    /// Groups, their lag and dead letters.
    GroupRead = 4,
    /// Making, moving and deleting groups.
    GroupWrite = 8,
    /// Pulling from groups, and saying what became of deliveries.
    GroupConsume = 16,
    EntityRead = 32,
    EntityWrite = 64,
    /// What is declared, runs, waits, decisions, and why.
    Read = 128,
    /// Starting, stopping and answering runs.
    AutomationWrite = 256,
    /// What is declared.
    AutomationAdmin = 512,
    /// Tokens, hooks, secrets, upkeep and audit of one tenant.
    Admin = 1024,
    /// The tenants themselves.
    Node = 2048,
    /// Taking tasks of runs, and saying what became of them.
    TaskWork = 4096,
}

impl Permission {
    pub const ALL: [Permission; 13] = [
        Permission::EventRead,
        Permission::EventWrite,
        Permission::GroupRead,
        Permission::GroupWrite,
        Permission::GroupConsume,
        Permission::EntityRead,
        Permission::EntityWrite,
        Permission::Read,
        Permission::AutomationWrite,
        Permission::AutomationAdmin,
        Permission::Admin,
        Permission::Node,
        Permission::TaskWork,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Permission::EventRead => "event:read",
            Permission::EventWrite => "event:write",
            Permission::GroupRead => "group:read",
            Permission::GroupWrite => "group:write",
            Permission::GroupConsume => "group:consume",
            Permission::EntityRead => "entity:read",
            Permission::EntityWrite => "entity:write",
            Permission::Read => "read",
            Permission::AutomationWrite => "automation:write",
            Permission::AutomationAdmin => "automation:admin",
            Permission::Admin => "admin",
            Permission::Node => "node",
            Permission::TaskWork => "task:work",
        }
    }

    pub fn parse(text: &str) -> Option<Permission> {
        Permission::ALL.into_iter().find(|permission| permission.as_str() == text)
    }
}

/// A set of permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions(u16);

impl Permissions {
    pub const ALL: Permissions = Permissions((1 << Permission::ALL.len()) - 1);

    pub fn of(list: &[Permission]) -> Permissions {
        Permissions(list.iter().fold(0, |set, permission| set | *permission as u16))
    }

    /// What can be held to spaces and bands: events, groups, rows, and reading what happened.
    pub fn of_a_part() -> Permissions {
        Role::Viewer.permissions()
            | Permissions::of(&[
                Permission::EventWrite,
                Permission::GroupWrite,
                Permission::GroupConsume,
                Permission::EntityWrite,
            ])
    }

    /// Whether all of the others are among these.
    pub fn covers(self, others: Permissions) -> bool {
        others.0 & !self.0 == 0
    }

    pub fn has(self, permission: Permission) -> bool {
        self.0 & permission as u16 != 0
    }
}

impl std::ops::BitOr for Permissions {
    type Output = Permissions;

    fn bitor(self, other: Permissions) -> Permissions {
        Permissions(self.0 | other.0)
    }
}

impl std::ops::BitAnd for Permissions {
    type Output = Permissions;

    fn bitand(self, other: Permissions) -> Permissions {
        Permissions(self.0 & other.0)
    }
}

/// What one who asks for a token wants it to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub role: Role,
    /// Permissions by name; empty: all that the role has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Empty: every space.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spaces: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_band: Option<Band>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl Terms {
    pub fn of(role: Role) -> Terms {
        let (name, scopes, spaces) = (String::new(), Vec::new(), Vec::new());
        Terms { name, role, scopes, spaces, max_band: None, expires_at: None }
    }

    pub fn sight(&self) -> Sight {
        Sight::new(&self.spaces, self.max_band)
    }

    /// What it comes to. A scope beyond the role is refused: it would read as a right that is not there. Who sees only a part
    /// has no rights that reach over all of the tenant.
    pub fn permissions(&self) -> Result<Permissions, Problem> {
        let whole = self.sight().is_whole();
        let role =
            if whole { self.role.permissions() } else { self.role.permissions() & Permissions::of_a_part() };
        if self.scopes.is_empty() {
            return Ok(role);
        }
        let mut set = Permissions::default();
        for (at, scope) in self.scopes.iter().enumerate() {
            let wrong = |detail: String, hint: String| {
                Problem::new(Code::TokenInvalid, detail).hint(hint).at(format!("/scopes/{at}"))
            };
            let Some(permission) = Permission::parse(scope) else {
                let names: Vec<&str> = Permission::ALL.iter().map(|permission| permission.as_str()).collect();
                return Err(wrong(
                    format!("there is no scope \"{scope}\""),
                    format!("choose among {}", names.join(", ")),
                ));
            };
            if !role.has(permission) {
                let of_a_part = if whole { "" } else { " for single spaces or bands" };
                let detail = format!("role \"{}\" does not have \"{scope}\"{of_a_part}", self.role.as_str());
                return Err(wrong(detail, "choose another role, or leave the scope out".to_owned()));
            }
            set = set | Permissions::of(&[permission]);
        }
        Ok(set)
    }
}

/// A token that is known, ready to be asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// `tok_<26>`.
    pub id: String,
    pub tenant: String,
    pub terms: Terms,
    pub permissions: Permissions,
    pub sight: Sight,
}

impl Grant {
    pub fn new(id: String, tenant: String, terms: Terms) -> Result<Grant, Problem> {
        let permissions = terms.permissions()?;
        let (administers, reads) =
            (permissions.has(Permission::Admin), permissions.has(Permission::EventRead));
        let sight = terms.sight().of_one_who(administers, reads);
        Ok(Grant { id, tenant, terms, permissions, sight })
    }

    /// Whoever owns the first tenant owns the node.
    pub fn may(&self, permission: Permission) -> bool {
        self.permissions.has(permission) && (permission != Permission::Node || self.tenant == DEFAULT_TENANT)
    }

    pub fn is_over(&self, now: Timestamp) -> bool {
        self.terms.expires_at.is_some_and(|at| at <= now)
    }

    /// As what its holder does is recorded.
    pub fn actor(&self) -> String {
        let name = if self.terms.name.is_empty() { &self.id } else { &self.terms.name };
        format!("token:{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_what_their_names_say_and_scopes_only_take_away() {
        assert!(Role::Editor.permissions().has(Permission::AutomationWrite));
        assert!(!Role::Editor.permissions().has(Permission::AutomationAdmin));
        assert!(Role::Admin.permissions().has(Permission::AutomationAdmin));
        assert!(!Role::Admin.permissions().has(Permission::Node));
        assert!(!Role::Viewer.permissions().has(Permission::EventWrite));
        assert!(!Role::Publisher.permissions().has(Permission::EventRead));
        let narrow = Terms { scopes: vec!["event:read".into()], ..Terms::of(Role::Editor) };
        assert_eq!(narrow.permissions().unwrap(), Permissions::of(&[Permission::EventRead]));
        let beyond = Terms { scopes: vec!["event:read".into()], ..Terms::of(Role::Publisher) };
        assert_eq!(beyond.permissions().unwrap_err().pointer(), Some("/scopes/0"));
    }

    #[test]
    fn who_sees_a_part_has_no_rights_over_all_of_it() {
        let part = Terms { spaces: vec!["a".into()], ..Terms::of(Role::Owner) };
        let permissions = part.permissions().unwrap();
        assert!(permissions.has(Permission::EventWrite) && permissions.has(Permission::Read));
        for beyond in
            [Permission::AutomationWrite, Permission::AutomationAdmin, Permission::Admin, Permission::Node]
        {
            assert!(!permissions.has(beyond), "{}", beyond.as_str());
        }
        let scoped = Terms { scopes: vec!["automation:write".into()], ..part };
        assert_eq!(scoped.permissions().unwrap_err().pointer(), Some("/scopes/0"));
    }
}
