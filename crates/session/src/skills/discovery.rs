//! Finds the skills of a source: folders with a file `SKILL.md`.

use std::path::{Component, Path, PathBuf};

use super::{SkillError, SkillSource};

const SKILL_FILE: &str = "SKILL.md";

/// A skill folder on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Skill {
    pub(super) name: String,
    pub(super) folder: PathBuf,
}

/// Returns the selected skills of a source: the source itself, else the folders in `skills/` and directly below it.
/// Fails when a selected skill is missing or a name is invalid.
pub(super) fn find(root: &Path, source: &SkillSource) -> Result<Vec<Skill>, SkillError> {
    let mut base = root.to_owned();
    if let Some(subpath) = &source.subpath {
        let is_relative = Path::new(subpath).components().all(|part| matches!(part, Component::Normal(_)));
        // A link could lead anywhere on the host, so the resolved path is checked.
        base = root.join(subpath).canonicalize().unwrap_or_default();
        let real = root.canonicalize().unwrap_or_default();
        if !is_relative || !base.starts_with(&real) {
            return Err(SkillError::Invalid(subpath.clone()));
        }
    }
    let mut all = if base.join(SKILL_FILE).is_file() {
        vec![Skill { name: own_name(&base, source), folder: base }]
    } else {
        [skills_below(&base.join("skills")), skills_below(&base)].concat()
    };
    if let Some(skill) = all.iter().find(|skill| !is_valid_name(&skill.name)) {
        return Err(SkillError::Invalid(skill.name.clone()));
    }
    let missing = |skill: &str| SkillError::Missing { skill: skill.to_owned(), source_name: source.location.clone() };
    if let Some(wanted) = &source.skills {
        if let Some(absent) = wanted.iter().find(|name| !all.iter().any(|skill| skill.name == **name)) {
            return Err(missing(absent));
        }
        all.retain(|skill| wanted.contains(&skill.name));
    }
    if all.is_empty() { Err(missing("SKILL.md")) } else { Ok(all) }
}

/// Returns the skill folders directly below `folder`. Links are skipped, because they could lead anywhere.
fn skills_below(folder: &Path) -> Vec<Skill> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let skills = folders.filter(|entry| entry.path().join(SKILL_FILE).is_file());
    let mut skills: Vec<Skill> = skills
        .map(|entry| Skill { name: entry.file_name().to_string_lossy().into_owned(), folder: entry.path() })
        .collect();
    skills.sort_by(|one, other| one.name.cmp(&other.name));
    skills
}

/// Returns the name of a source that is one skill: its folder, or the last part of its URL.
fn own_name(base: &Path, source: &SkillSource) -> String {
    let of_path = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match source.subpath {
        Some(_) => of_path(base),
        None => of_path(Path::new(&source.location)).trim_end_matches(".git").to_owned(),
    }
}

fn is_valid_name(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    !name.is_empty() && !name.starts_with(['.', '-']) && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(files: &[&str], source: serde_json::Value, expected: Result<&str, &str>) {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "---\nname: x\n---\n").unwrap();
        }
        std::os::unix::fs::symlink("/", root.path().join("link")).unwrap();
        let mut full = json!({"type": "git", "source": "https://example.com/tidy.git"});
        full.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        let source: SkillSource = serde_json::from_value(full).unwrap();
        let found = find(root.path(), &source).map_err(|error| error.to_string());
        let names = found.map(|skills| skills.into_iter().map(|skill| skill.name).collect::<Vec<_>>().join(" "));
        assert_eq!(names, expected.map(str::to_owned).map_err(str::to_owned));
    }

    #[test]
    fn skills_are_found_in_common_layouts() {
        check(&["SKILL.md", "skills/a/SKILL.md"], json!({}), Ok("tidy"));
        check(&["skills/b/SKILL.md", "skills/a/SKILL.md", "c/SKILL.md", "d/README"], json!({}), Ok("a b c"));
        check(&["deep/er/SKILL.md"], json!({"subpath": "deep/er"}), Ok("er"));
        check(&["a/SKILL.md", "b/SKILL.md"], json!({"skills": ["b"]}), Ok("b"));
    }

    #[test]
    fn missing_or_escaping_skills_are_refused() {
        let source = "https://example.com/tidy.git";
        check(&["README"], json!({}), Err(&format!("no skill `SKILL.md` in `{source}`")));
        check(&["a/SKILL.md"], json!({"skills": ["z"]}), Err(&format!("no skill `z` in `{source}`")));
        check(&["a/SKILL.md"], json!({"subpath": "../a"}), Err("invalid path, URL or name `../a`"));
        check(&["a/SKILL.md"], json!({"subpath": "link/etc"}), Err("invalid path, URL or name `link/etc`"));
        check(&["a b/SKILL.md"], json!({}), Err("invalid path, URL or name `a b`"));
    }
}
