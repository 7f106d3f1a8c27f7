//! The event formats of the file, as in a Linux 6.x kernel.

/// A field: its C declaration, bytes, sign, and where it stands.
struct Field {
    declaration: String,
    /// The last word of the declaration, without its `[16]`.
    name: String,
    offset: usize,
    size: usize,
    signed: bool,
}

/// One event.
pub struct Format {
    pub system: &'static str,
    pub name: &'static str,
    pub id: u16,
    fields: Vec<Field>,
    print: String,
    end: usize,
}

impl Format {
    fn new(system: &'static str, name: &'static str, id: u16) -> Self {
        let format = Self {
            system,
            name,
            id,
            fields: Vec::new(),
            print: String::new(),
            end: 0,
        };
        format
            .field("unsigned short common_type", 2, false)
            .field("unsigned char common_flags", 1, false)
            .field("unsigned char common_preempt_count", 1, false)
            .field("int common_pid", 4, true)
    }

    /// Adds a field at the next offset that suits its size.
    fn field(self, declaration: &str, size: usize, signed: bool) -> Self {
        let align = if declaration.ends_with(']') { 1 } else { size };
        let offset = self.end.next_multiple_of(align);
        self.push(declaration, offset, size, signed)
    }

    fn push(mut self, declaration: &str, offset: usize, size: usize, signed: bool) -> Self {
        let last = declaration.rsplit(' ').next().unwrap_or("");
        let name = last.split('[').next().unwrap_or("").to_string();
        self.end = offset + size;
        self.fields.push(Field {
            declaration: declaration.to_string(),
            name,
            offset,
            size,
            signed,
        });
        self
    }

    fn int(self, name: &str) -> Self {
        self.field(&format!("int {name}"), 4, true)
    }

    fn pid(self, name: &str) -> Self {
        self.field(&format!("pid_t {name}"), 4, true)
    }

    fn comm(self, name: &str) -> Self {
        self.field(&format!("char {name}[16]"), 16, false)
    }

    /// A string behind the fixed fields.
    fn dynamic(self, name: &str) -> Self {
        let offset = self.end.next_multiple_of(4);
        self.push(&format!("__data_loc char[] {name}"), offset, 4, false)
    }

    fn print(mut self, text: &str) -> Self {
        self.print = text.to_string();
        self
    }

    /// Bytes of the fixed fields.
    pub fn size(&self) -> usize {
        self.end
    }

    pub fn offset(&self, name: &str) -> usize {
        self.fields
            .iter()
            .find(|field| field.name == name)
            .map_or(0, |field| field.offset)
    }

    /// The text of the event's `format` file.
    pub fn text(&self) -> String {
        let mut text = format!("name: {}\nID: {}\nformat:\n", self.name, self.id);
        for (index, field) in self.fields.iter().enumerate() {
            if index == 4 {
                text.push('\n');
            }
            text.push_str(&format!(
                "\tfield:{};\toffset:{};\tsize:{};\tsigned:{};\n",
                field.declaration,
                field.offset,
                field.size,
                u8::from(field.signed)
            ));
        }
        text.push_str(&format!("\nprint fmt: {}\n", self.print));
        text
    }
}

/// Every event that the writer knows, for a kernel of `long_bytes`.
pub struct Formats {
    pub switch: Format,
    pub waking: Format,
    pub wakeup: Format,
    pub wakeup_new: Format,
    pub migrate: Format,
    pub fork: Format,
    pub exec: Format,
    pub exit: Format,
    pub pi_setprio: Format,
    pub newtask: Format,
    pub rename: Format,
    pub sched_yield: Format,
}

/// Bits of prev_state in this file's sched_switch. `?` is ours: a state that the source did not
/// know.
pub const STATE_UNKNOWN: u64 = 0x200;
pub const STATE_PREEMPTED: u64 = 0x100;

impl Formats {
    pub fn new(long_bytes: usize) -> Self {
        let wake = |name, id| {
            Format::new("sched", name, id)
                .comm("comm")
                .pid("pid")
                .int("prio")
                .int("target_cpu")
                .print(
                    "\"comm=%s pid=%d prio=%d target_cpu=%03d\", \
                 REC->comm, REC->pid, REC->prio, REC->target_cpu",
                )
        };
        Self {
            switch: Format::new("sched", "sched_switch", 300)
                .comm("prev_comm")
                .pid("prev_pid")
                .int("prev_prio")
                .field("long prev_state", long_bytes, true)
                .comm("next_comm")
                .pid("next_pid")
                .int("next_prio")
                .print(
                    "\"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s \
                     next_pid=%d next_prio=%d\", REC->prev_comm, REC->prev_pid, REC->prev_prio, \
                     (REC->prev_state & 0x2ff) ? __print_flags(REC->prev_state & 0x2ff, \"|\", \
                     { 0x00000001, \"S\" }, { 0x00000002, \"D\" }, { 0x00000004, \"T\" }, \
                     { 0x00000008, \"t\" }, { 0x00000010, \"X\" }, { 0x00000020, \"Z\" }, \
                     { 0x00000040, \"P\" }, { 0x00000080, \"I\" }, { 0x00000200, \"?\" }) : \"R\", \
                     REC->prev_state & 0x100 ? \"+\" : \"\", \
                     REC->next_comm, REC->next_pid, REC->next_prio",
                ),
            waking: wake("sched_waking", 301),
            wakeup: wake("sched_wakeup", 302),
            wakeup_new: wake("sched_wakeup_new", 303),
            migrate: Format::new("sched", "sched_migrate_task", 304)
                .comm("comm")
                .pid("pid")
                .int("prio")
                .int("orig_cpu")
                .int("dest_cpu")
                .print(
                    "\"comm=%s pid=%d prio=%d orig_cpu=%d dest_cpu=%d\", \
                     REC->comm, REC->pid, REC->prio, REC->orig_cpu, REC->dest_cpu",
                ),
            fork: Format::new("sched", "sched_process_fork", 305)
                .dynamic("parent_comm")
                .pid("parent_pid")
                .dynamic("child_comm")
                .pid("child_pid")
                .print(
                    "\"comm=%s pid=%d child_comm=%s child_pid=%d\", \
                     __get_str(parent_comm), REC->parent_pid, __get_str(child_comm), REC->child_pid",
                ),
            exec: Format::new("sched", "sched_process_exec", 306)
                .dynamic("filename")
                .pid("pid")
                .pid("old_pid")
                .print(
                    "\"filename=%s pid=%d old_pid=%d\", \
                     __get_str(filename), REC->pid, REC->old_pid",
                ),
            exit: Format::new("sched", "sched_process_exit", 307)
                .comm("comm")
                .pid("pid")
                .int("prio")
                .print("\"comm=%s pid=%d prio=%d\", REC->comm, REC->pid, REC->prio"),
            pi_setprio: Format::new("sched", "sched_pi_setprio", 308)
                .comm("comm")
                .pid("pid")
                .int("oldprio")
                .int("newprio")
                .print(
                    "\"comm=%s pid=%d oldprio=%d newprio=%d\", \
                     REC->comm, REC->pid, REC->oldprio, REC->newprio",
                ),
            newtask: Format::new("task", "task_newtask", 309)
                .pid("pid")
                .comm("comm")
                .field("unsigned long clone_flags", long_bytes, false)
                .field("short oom_score_adj", 2, true)
                .print(
                    "\"pid=%d comm=%s clone_flags=%lx oom_score_adj=%hd\", \
                     REC->pid, REC->comm, REC->clone_flags, REC->oom_score_adj",
                ),
            rename: Format::new("task", "task_rename", 310)
                .pid("pid")
                .comm("oldcomm")
                .comm("newcomm")
                .field("short oom_score_adj", 2, true)
                .print(
                    "\"pid=%d oldcomm=%s newcomm=%s oom_score_adj=%hd\", \
                     REC->pid, REC->oldcomm, REC->newcomm, REC->oom_score_adj",
                ),
            sched_yield: Format::new("syscalls", "sys_enter_sched_yield", 311)
                .int("__syscall_nr")
                .print("\"\""),
        }
    }

    /// System by system, as the file lists them.
    pub fn systems(&self) -> Vec<(&'static str, Vec<&Format>)> {
        let all = [
            &self.switch,
            &self.waking,
            &self.wakeup,
            &self.wakeup_new,
            &self.migrate,
            &self.fork,
            &self.exec,
            &self.exit,
            &self.pi_setprio,
            &self.newtask,
            &self.rename,
            &self.sched_yield,
        ];
        ["sched", "task", "syscalls"]
            .map(|system| {
                (
                    system,
                    all.into_iter().filter(|f| f.system == system).collect(),
                )
            })
            .to_vec()
    }
}

/// The text of `events/header_page`.
pub fn header_page(long_bytes: usize, page_bytes: usize) -> String {
    let data = 8 + long_bytes;
    format!(
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
         \tfield: local_t commit;\toffset:8;\tsize:{long_bytes};\tsigned:1;\n\
         \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
         \tfield: char data;\toffset:{data};\tsize:{};\tsigned:0;\n",
        page_bytes - data
    )
}

/// The text of `events/header_event`.
pub const HEADER_EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\
    \ttime_delta  :   27 bits\n\tarray       :   32 bits\n\n\tpadding     : type == 29\n\
    \ttime_extend : type == 30\n\ttime_stamp : type == 31\n\tdata max type_len  == 28\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::ftrace::catalogue::Builder;
    use crate::decode::ftrace::format::PageLayout;

    #[test]
    fn the_reader_understands_every_format_that_the_writer_tells() {
        for long_bytes in [4, 8] {
            let formats = Formats::new(long_bytes);
            let mut builder = Builder::new("");
            for (system, events) in formats.systems() {
                for event in events {
                    builder.add(system, &event.text(), event.name).unwrap();
                }
            }
            assert!(
                builder
                    .finish()
                    .events()
                    .iter()
                    .skip(1)
                    .all(|known| known.wanted)
            );
            let page = header_page(long_bytes, 4096);
            let layout = PageLayout::parse(&page, "", 8, 4096).unwrap();
            assert_eq!((layout.data, layout.bytes), (8 + long_bytes, 4096));
        }
        assert_eq!(Formats::new(8).switch.size(), 64);
    }
}
