// The policy of a session: what it allows in sentences, how each key is enforced, what was denied, and the grants.
import { useEffect, useState } from "preact/hooks";
import type { JSX } from "preact";
import { call, errorText, json, sessionPath } from "../api/client";
import { type AnyEvent, list, number, record, text } from "../api/events";
import { can } from "../state/overview";
import type { OpenSession } from "../state/session";
import { clock } from "../ui/format";
import { Action, Badge, Empty, Loading, Problem, toast } from "../ui/parts";
import { oneLine, visible } from "../ui/visible";

interface GrantRow {
  grant_id: string;
  action: string;
  match: unknown;
}

export function Policy({ open }: { open: OpenSession }): JSX.Element {
  void open.version.value;
  const { events } = open.timeline;
  const effective = events.findLast((event) => event.type === "policy.effective");
  const changed = events.filter((event) => event.type === "policy.narrowed" || event.type === "policy.widened");
  if (!effective) return open.link.value === "loading" ? <Loading what="the policy" /> : <Empty title="No policy was recorded" />;
  const sentences = list(effective.data.sentences).map(record);
  return (
    <div class="policy">
      <section>
        <h2>What this session may do</h2>
        {sentences.length === 0 && <p class="muted">This session was recorded without sentences. The keys below say how each part is enforced.</p>}
        <ul class="sentences">
          {sentences.map((one, index) => (
            <li key={index}>{visible(text(one.text))} <span class="muted small">{oneLine(`${text(one.layer)}, ${text(one.rule)}`)}</span></li>
          ))}
        </ul>
      </section>
      {changed.length > 0 && (
        <section>
          <h2>Changes since the start</h2>
          <ul>{changed.map((event) => <li key={event.sequence}>{event.type === "policy.narrowed" ? "Restricted" : "Extended"}: <code>{oneLine(list(event.data.rules).map(text).join(", "))}</code></li>)}</ul>
        </section>
      )}
      <Denied events={events} />
      <Grants open={open} />
      <section>
        <h2>How each key is enforced</h2>
        <div class="table-box" tabIndex={0} role="region" aria-label="How each key is enforced">
          <table class="table">
            <thead><tr><th>Key</th><th>State</th><th>By</th></tr></thead>
            <tbody>
              {Object.entries(record(effective.data.keys)).map(([key, value]) => {
                const { state, by } = record(value);
                return <tr key={key}><td><code>{key}</code></td><td><Badge tone={state === "enforced" ? "good" : "warn"}>{oneLine(text(state))}</Badge></td><td>{visible(text(by))}</td></tr>;
              })}
            </tbody>
          </table>
        </div>
      </section>
    </div>
  );
}

/** Denied attempts, each once with its count. */
function Denied({ events }: { events: AnyEvent[] }): JSX.Element {
  const groups = new Map<string, { host: string; rule: string; count: number; first: string; last: string }>();
  for (const { type, data, time } of events) {
    if (type !== "egress.denied") continue;
    const host = `${text(data.host)}:${number(data.port)}`;
    const key = `${host}\n${text(data.rule)}`;
    const known = groups.get(key) ?? { host, rule: text(data.rule), count: 0, first: time, last: time };
    groups.set(key, { ...known, count: known.count + Math.max(1, number(data.count)), last: time });
  }
  return (
    <section>
      <h2>Denied</h2>
      {groups.size === 0 ? (
        <p class="muted">Nothing was denied.</p>
      ) : (
        <div class="table-box" tabIndex={0} role="region" aria-label="Denied attempts">
          <table class="table">
            <thead><tr><th>Target</th><th class="number">Times</th><th>Rule</th><th>First</th><th>Last</th></tr></thead>
            <tbody>
              {[...groups.values()].map((group) => (
                <tr key={group.host + group.rule}><td><code>{oneLine(group.host)}</code></td><td class="number">{group.count}</td><td>{oneLine(group.rule)}</td><td>{clock(group.first)}</td><td>{clock(group.last)}</td></tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Grants({ open }: { open: OpenSession }): JSX.Element {
  const [grants, setGrants] = useState<GrantRow[] | null>(null);
  const [problem, setProblem] = useState("");
  const load = async (): Promise<void> => {
    try {
      setGrants((await json<{ grants: GrantRow[] }>(sessionPath(open.id, "/grants"))).grants);
    } catch (error) {
      setProblem(errorText(error));
    }
  };
  useEffect(() => void load(), [open.id, open.version.value]);
  const revoke = async (id: string): Promise<void> => {
    await call(sessionPath(open.id, `/grants/${encodeURIComponent(id)}`), { method: "DELETE" });
    toast("The grant was revoked.");
    await load();
  };
  return (
    <section>
      <h2>Grants</h2>
      {problem && <Problem text={problem} />}
      {grants?.length === 0 && <p class="muted">Nobody has allowed more than the policy.</p>}
      <ul class="grants">
        {grants?.map((grant) => (
          <li key={grant.grant_id}>
            <span>{oneLine(grant.action)}: <code>{oneLine(typeof grant.match === "string" ? grant.match : JSON.stringify(grant.match))}</code></span>
            {can("answer") && <Action run={() => revoke(grant.grant_id)}>Revoke</Action>}
          </li>
        ))}
      </ul>
    </section>
  );
}
