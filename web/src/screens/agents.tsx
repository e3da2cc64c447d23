// The agents: which are installed, in which version, and what each can do, as the server says.
import { useEffect, useState } from "preact/hooks";
import type { JSX } from "preact";
import { type Schemas, errorText, json, post } from "../api/client";
import { can } from "../state/overview";
import { Action, Badge, Loading, Problem, toast } from "../ui/parts";
import { oneLine } from "../ui/visible";

type Agent = Schemas["AgentInfo"];

export function AgentsScreen(): JSX.Element {
  const [agents, setAgents] = useState<readonly Agent[] | null>(null);
  const [problem, setProblem] = useState("");
  const load = async (): Promise<void> => {
    try {
      setAgents((await json<Schemas["AgentList"]>("/v1/agents")).agents);
    } catch (error) {
      setProblem(errorText(error));
    }
  };
  useEffect(() => void load(), []);
  const names = Object.keys(agents?.[0]?.capabilities ?? {}) as (keyof Agent["capabilities"])[];
  const install = async (id: string): Promise<void> => {
    await post(`/v1/agents/${encodeURIComponent(id)}/install`, {});
    toast(`${id} is installed.`);
    await load();
  };
  return (
    <>
      <header class="page-head"><h1>Agents</h1></header>
      {problem && <Problem text={problem} />}
      {!agents && !problem && <Loading what="agents" />}
      {agents && (
        <div class="table-box" tabIndex={0} role="region" aria-label="Capabilities of the agents">
          <table class="table matrix">
            <thead>
              <tr><th scope="col">Capability</th>{agents.map((agent) => <th scope="col" key={agent.id}>{agent.id}</th>)}</tr>
            </thead>
            <tbody>
              <tr>
                <th scope="row">Version</th>
                {agents.map((agent) => (
                  <td key={agent.id}>
                    {agent.installed ? <Badge tone="good">{oneLine(agent.version ?? "built in", 30)}</Badge> : can("admin") ? <Action run={() => install(agent.id)}>Install</Action> : <span class="muted">not installed</span>}
                  </td>
                ))}
              </tr>
              {names.map((name) => (
                <tr key={name} data-capability={name}>
                  <th scope="row">{words(name)}</th>
                  {agents.map((agent) => (
                    <td key={agent.id} data-agent={agent.id}>{agent.capabilities[name] ? <span class="yes">yes</span> : <span class="muted">no</span>}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

function words(name: string): string {
  const spaced = name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).replace("mcp", "MCP");
  return spaced.charAt(0).toUpperCase() + spaced.slice(1);
}
