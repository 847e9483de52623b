"""A real YARN on this machine, for tests: a resource manager and node managers in one Java process,
which is Hadoop's own `MiniYARNCluster`. Hadoop's jars are those of pip's pyspark. What they lack is
fetched once from Maven Central."""

import os
import socket
import subprocess
from pathlib import Path
from typing import IO, Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway

from sojourn.engine.spark.jars import jars
from sojourn.engine.spark.java import find_java
from sojourn.engine.spark.session import QUICK_JAVA

_JARS = Path(pyspark.__file__).parent / "jars"
_CACHE = Path.home() / ".cache" / "sojourn"
_LEAN_JAVA = f"{QUICK_JAVA} -XX:+UseSerialGC"
_CONNECT_MS = 60_000
_STOP_S = 60.0
_MISSING = (
    "org.apache.hadoop:hadoop-client-minicluster:{hadoop}",
    "org.bouncycastle:bcpkix-jdk18on:1.82",
    "org.bouncycastle:bcprov-jdk18on:1.82",
    "org.bouncycastle:bcutil-jdk18on:1.82",
    "org.junit.jupiter:junit-jupiter-api:5.14.1",
    "org.junit.platform:junit-platform-commons:1.14.1",
    "org.opentest4j:opentest4j:1.3.0",
)
_SETTINGS = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    "yarn.scheduler.minimum-allocation-mb": "128",
    # Neither a disk that is nearly full nor the memory of the machine is what is tested.
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.log.retain-seconds": "0",  # a node that stops waits for logs it is to delete
}


class YarnCluster:
    """The cluster listens on loopback, writes to one directory, and is gone after `close`, or once
    whoever started it is. Its containers go with it."""

    def __init__(self, directory: Path, nodes: int, node_memory_mb: int) -> None:
        hosts = directory / "hosts"  # for Java, this machine is loopback, whatever its name is
        hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n", encoding="utf-8")
        path, by = f"{fetched()}/*:{_JARS}/*", f"-Djdk.net.hosts.file={hosts}"
        with (directory / "yarn.log").open("w", encoding="utf-8") as log:
            self.java = _Java(path, directory, log, by)
        try:
            self.conf = self._start(directory / "conf", nodes, node_memory_mb)
        except BaseException:
            self.close()
            raise

    def _start(self, conf: Path, nodes: int, node_memory_mb: int) -> Path:
        hadoop = self.java.jvm.org.apache.hadoop
        settings = hadoop.yarn.conf.YarnConfiguration()
        for key, value in _SETTINGS.items():
            settings.set(key, value)
        settings.set("yarn.minicluster.yarn.nodemanager.resource.memory-mb", str(node_memory_mb))
        cluster = hadoop.yarn.server.MiniYARNCluster("sojourn", nodes, 1, 1)
        ending = hadoop.service.CompositeService.CompositeServiceShutdownHook(cluster)
        hadoop.util.ShutdownHookManager.get().addShutdownHook(ending, 0)
        cluster.init(settings)
        cluster.start()
        if not cluster.waitForNodeManagersToConnect(_CONNECT_MS):
            raise RuntimeError(f"YARN's nodes did not register; see {self.java.log}")
        conf.mkdir()
        file = self.java.jvm.java.io.FileOutputStream(str(conf / "yarn-site.xml"))
        cluster.getConfig().writeXml(file)
        file.close()
        return conf

    def configure(self, instances: int, cores: int, memory: str) -> None:
        """Have the next drivers run with settings of Spark."""
        given = {
            "spark.yarn.jars": f"local:{_JARS}/*",  # all nodes have them
            "spark.yarn.stagingDir": (self.conf.parent / "staging").as_uri(),
            "spark.yarn.am.memory": "256m",
            "spark.yarn.am.extraJavaOptions": _LEAN_JAVA,
            "spark.driver.extraJavaOptions": _LEAN_JAVA,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.instances": str(instances),
            "spark.executor.cores": str(cores),
            "spark.executor.memory": memory,
            "spark.executor.extraJavaOptions": _LEAN_JAVA,
            "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.executorEnv.SOJOURN_TESTS": os.environ["SOJOURN_TESTS"],
        }
        lines = "".join(f"{key} {value}\n" for key, value in given.items())
        (self.conf / "spark-defaults.conf").write_text(lines, encoding="utf-8")

    def close(self) -> None:
        """Stop everything."""
        self.java.close()

    def __enter__(self) -> "YarnCluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Java:
    """A Java process that does what it is told by py4j. It ends, with its shutdown hooks, when its
    standard input is closed, by us or by our death."""

    def __init__(self, classpath: str, directory: Path, log: IO[str], *options: str) -> None:
        self.log = log.name
        home = find_java(os.environ, _CACHE).home
        self.process = subprocess.Popen(
            [
                str(home / "bin" / "java"),
                *("-Xmx512m", *_LEAN_JAVA.split(), *options),
                "-Dlog4j2.configurationFile=org/apache/spark/log4j2-defaults.properties",
                *("-cp", classpath, "py4j.GatewayServer"),
                *("--die-on-broken-pipe", "--enable-auth", "0"),
            ],
            env={**os.environ, "JAVA_HOME": str(home)},  # that of the containers, too
            cwd=directory,
            start_new_session=True,  # Ctrl-C is not for it
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert self.process.stdout is not None
        with self.process.stdout as said:
            port, token = said.readline(), said.readline()
        self.gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=int(port), auth_token=token.strip())
        )
        self.jvm: Any = self.gateway.jvm

    def close(self) -> None:
        """End it."""
        self.gateway.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(_STOP_S)


def fetched() -> Path:
    """The directory with what pip's pyspark lacks for YARN."""
    (api,) = _JARS.glob("hadoop-client-api-*.jar")
    hadoop = api.stem.rpartition("-")[2]
    wanted = [one.format(hadoop=hadoop) for one in _MISSING]
    return jars("yarn", wanted, find_java(os.environ, _CACHE).home, _CACHE, alone=True)
